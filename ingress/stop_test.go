package ingress

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"
)

// holding is a listening node with one request that is being stored.
func holding(t *testing.T, proto string) (l *listening, release chan struct{}, answer chan int) {
	t.Helper()
	l = listen(t, Config{}, true)
	release = l.store.hold()
	answer = make(chan int, 1)
	client := l.client(proto)
	go func() {
		resp, err := l.send(client, "standard", genuine(t, "msg_held", vectorBody), bytes.NewReader(vectorBody))
		if err != nil {
			t.Logf("%s: %v", proto, err)
			answer <- 0
			return
		}
		answer <- resp.StatusCode
	}()
	for deadline := time.Now().Add(guard); l.store.enqueue.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the request does not reach the store")
		}
		<-time.After(time.Millisecond)
	}
	return l, release, answer
}

func TestStopLetsRequestsEnd(t *testing.T) {
	for _, proto := range []string{"h1", "h2", "h3"} {
		t.Run(proto, func(t *testing.T) {
			l, release, answer := holding(t, proto)
			addr := l.in.Addr().String()
			stopped := make(chan error, 1)
			go func() { stopped <- l.in.Stop(context.Background()) }()
			// The listener is gone before the request is.
			for deadline := time.Now().Add(guard); ; {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					break
				}
				_ = conn.Close()
				if time.Now().After(deadline) {
					t.Fatal("it still listens")
				}
			}
			select {
			case err := <-stopped:
				t.Fatalf("stopped with a request under way: %v", err)
			default:
			}
			close(release)
			if err := <-stopped; err != nil {
				t.Errorf("stop: %v", err)
			}
			if code := <-answer; code != http.StatusAccepted {
				t.Errorf("answered %d", code)
			}
		})
	}
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	for _, proto := range []string{"h1", "h3"} {
		t.Run(proto, func(t *testing.T) {
			l, release, answer := holding(t, proto)
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			if err := l.in.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("stop: %v", err)
			}
			if code := <-answer; code != 0 {
				t.Errorf("answered %d", code)
			}
			close(release)
			// The handler ends by itself; wait for it, as the process would not.
			if err := l.in.inFlight.wait(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStartAndStopAreIdempotent(t *testing.T) {
	l := listen(t, Config{}, true)
	addr := l.in.Addr()
	if err := l.in.Start(t.Context()); err != nil || l.in.Addr() != addr || l.in.Ready() != nil {
		t.Errorf("a second start: %v", err)
	}
	for range 2 {
		if err := l.in.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if err := l.in.Start(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("start after stop: %v", err)
	}
	if err := l.in.Ready(); !errors.Is(err, errNotStarted) {
		t.Errorf("ready after stop: %v", err)
	}
	never := setup(t, Config{})
	if err := never.in.Stop(t.Context()); err != nil || never.in.Addr().IsValid() {
		t.Errorf("stop without start: %v", err)
	}
}

func TestStartContextDoesNotEndTheListeners(t *testing.T) {
	n := setup(t, Config{Addr: "127.0.0.1:0", KernelEvery: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	if err := n.in.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	l := &listening{node: n}
	if resp := l.mustSend(l.client("h1"), "nobody", nil, nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("%d", resp.StatusCode)
	}
}

func TestStartThatFailsLeavesNothingOpen(t *testing.T) {
	certFile, keyFile := writeCertificate(t, authority(t), t.TempDir(), leafForever)
	for name, cfg := range map[string]Config{
		"bad address":      {Addr: "not an address"},
		"no certificate":   {Addr: "127.0.0.1:0", CertFile: "missing.pem", KeyFile: "missing.pem"},
		"wrong way around": {Addr: "127.0.0.1:0", CertFile: keyFile, KeyFile: certFile},
	} {
		n := setup(t, cfg)
		if err := n.in.Start(t.Context()); err == nil {
			t.Errorf("%s: started", name)
		}
	}
	// A UDP port in use fails the start after the TCP port was bound. Another
	// process may get that TCP port by chance, so one refusal proves nothing;
	// a listener left open would hold the port of every try.
	var last error
	for range 5 {
		if last = startOnTakenUDP(t, certFile, keyFile); last == nil {
			return
		}
	}
	t.Errorf("still bound: %v", last)
}

// startOnTakenUDP fails a start on a UDP port in use and then binds the TCP
// port of the same number. It returns why that was refused.
func startOnTakenUDP(t *testing.T, certFile, keyFile string) error {
	t.Helper()
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	n := setup(t, Config{Addr: taken.LocalAddr().String(), CertFile: certFile, KeyFile: keyFile})
	if err := n.in.Start(t.Context()); err == nil {
		t.Fatal("started on a UDP port in use")
	}
	l, err := net.Listen("tcp", taken.LocalAddr().String())
	if err != nil {
		return err
	}
	return l.Close()
}
