package ingress

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// gated is a large body that stops short of its end until all have come so far.
type gated struct {
	left    int64
	pause   int64 // stops when this much is left
	arrived *sync.WaitGroup
	open    <-chan struct{}
	once    sync.Once
}

func (g *gated) Read(p []byte) (int, error) {
	if g.left == 0 {
		return 0, io.EOF
	}
	if g.left <= g.pause {
		g.once.Do(g.arrived.Done)
		<-g.open
	}
	n := min(int64(len(p)), g.left)
	if g.left > g.pause {
		n = min(n, g.left-g.pause)
	}
	clear(p[:n])
	g.left -= n
	return int(n), nil
}

// Fifty bodies of 25 MiB are under way at the same time, all but their last byte
// received. What is in memory of them has to be a small part of what they are.
func TestMemoryIsFlatUnderFiftyLargeBodies(t *testing.T) {
	const bodies = 50
	size := int64(nodeMaxBody)
	if raceDetector {
		size = 2 << 20 // the bound below is for the whole size, so this checks less
	}
	l := listen(t, Config{BodyTimeout: 10 * time.Minute}, false)
	l.sources.set("acme", "large", &Source{
		Scheme: signing.GitHub, Secrets: signing.Secrets(vectorSecret), MaxBody: size, Destination: Destination{Type: DestinationFanOut},
	})
	mac, sum := hmac.New(sha256.New, []byte(vectorSecret)), sha256.New()
	if _, err := io.CopyN(io.MultiWriter(mac, sum), zeros{}, size); err != nil {
		t.Fatal(err)
	}
	signature := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	l.store.skipBody.Store(true) // reading them again would only heat the room
	client := l.client("h1")
	client.Timeout = 0
	before := heapInUse()

	var arrived, done sync.WaitGroup
	open := make(chan struct{})
	arrived.Add(bodies)
	var accepted atomic.Int64
	for i := range bodies {
		done.Go(func() {
			h := http.Header{"X-Hub-Signature-256": {signature}, "X-Github-Delivery": {fmt.Sprint(i)}}
			resp, err := l.send(client, "large", h, &gated{left: size, pause: 1, arrived: &arrived, open: open})
			if err != nil {
				t.Error(err)
				return
			}
			if resp.StatusCode == http.StatusAccepted {
				accepted.Add(1)
			}
		})
	}
	arrived.Wait()
	// The last bytes are on their way through the sockets; the files say when.
	for deadline := time.Now().Add(guard); l.in.disk.used.Load() < bodies*(size-(256<<10)); {
		if time.Now().After(deadline) {
			t.Fatalf("only %d MiB have arrived", l.in.disk.used.Load()>>20)
		}
		<-time.After(time.Millisecond)
	}
	held := heapInUse() - before
	close(open)
	done.Wait()
	if accepted.Load() != bodies {
		t.Errorf("%d of %d were accepted", accepted.Load(), bodies)
	}
	// 64 KiB each of the server's and as much of the client's and the sockets'
	// buffers make some 10 MiB; the bodies are 1,250.
	t.Logf("%d KiB of memory for %d MiB of bodies", held>>10, bodies*size>>20)
	if held > 64<<20 {
		t.Errorf("%d MiB of memory for %d MiB of bodies", held>>20, bodies*size>>20)
	}
	for _, r := range l.store.stored() {
		if !bytes.Equal(r.Digest[:], sum.Sum(nil)) {
			t.Fatal("a body was not received as it was sent")
		}
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A flood of forgeries must cost nobody else anything but time: every genuine
// event gets through, nothing forged reaches the store, and nothing stays held.
func TestFloodOfForgeriesLetsEveryGenuineEventThrough(t *testing.T) {
	l := listen(t, Config{Failures: FailureConfig{PerSecond: 1, Burst: 20}}, false)
	client := l.client("h1")
	stop := make(chan struct{})
	var flood sync.WaitGroup
	var forged, throttled atomic.Int64
	for i := range 4 {
		flood.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// Handled as if from other addresses, as a flood is.
				r := request("github", http.Header{"X-Hub-Signature-256": {"sha256=" + strings.Repeat("0", 64)}}, bytes.NewReader(vectorBody))
				r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1", i)
				if w := l.serve(r); w.Code == http.StatusTooManyRequests {
					throttled.Add(1)
				}
				forged.Add(1)
			}
		})
	}
	for i := range 50 {
		resp := l.mustSend(client, "standard", genuine(t, fmt.Sprintf("msg_%d", i), vectorBody), bytes.NewReader(vectorBody))
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("event %d: %d", i, resp.StatusCode)
		}
	}
	// Until each of the four has used up its 20 tries.
	for forged.Load() < 500 || l.count(OutcomeMismatch) < 4*20 {
		runtime.Gosched()
	}
	close(stop)
	flood.Wait()
	if rows := len(l.store.stored()); rows != 50 {
		t.Errorf("%d rows", rows)
	}
	verified := l.count(OutcomeMismatch)
	if throttled.Load() != forged.Load()-int64(verified) {
		t.Errorf("of %d forgeries %d were verified and %d throttled", forged.Load(), verified, throttled.Load())
	}
}

// discard is an answer that nobody reads.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header       { return d.h }
func (*discard) Write(p []byte) (int, error) { return len(p), nil }
func (*discard) WriteHeader(int)             {}

// rejections are requests in the order of what they cost.
func rejections(t testing.TB, n *node) map[string]*http.Request {
	full := httptest.NewRequest(http.MethodPost, "/webhook/acme/github", nil)
	full.RemoteAddr = "203.0.113.9:1"
	for range 1000 {
		n.in.failures.charge("acme", clientAddr(full, nil), time.Now().Add(time.Hour))
	}
	return map[string]*http.Request{
		"method":    httptest.NewRequest(http.MethodGet, "/webhook/acme/github", nil),
		"path":      httptest.NewRequest(http.MethodPost, "/wp-login.php", nil),
		"throttled": full,
		"unknown":   httptest.NewRequest(http.MethodPost, "/webhook/acme/nobody", nil),
		"unsigned":  httptest.NewRequest(http.MethodPost, "/webhook/acme/github", nil),
	}
}

// Allocations do not depend on the machine's mood, as times do.
func TestRejectionsAllocateLittle(t *testing.T) {
	n := setup(t, Config{Failures: FailureConfig{PerSecond: 1e6, Burst: 1e6}})
	n.in.cfg.Observer = Observer{}
	for name, r := range rejections(t, n) {
		w := &discard{http.Header{}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const rounds = 200
		for range rounds {
			n.in.ServeHTTP(w, r)
		}
		runtime.ReadMemStats(&after)
		if spent := (after.TotalAlloc - before.TotalAlloc) / rounds; spent > 4<<10 {
			t.Errorf("%s: %d bytes for each", name, spent)
		}
	}
}

func BenchmarkReject(b *testing.B) {
	n := setup(b, Config{Failures: FailureConfig{PerSecond: 1e6, Burst: 1e6}})
	n.in.cfg.Observer = Observer{}
	for name, r := range rejections(b, n) {
		b.Run(name, func(b *testing.B) {
			w := &discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				n.in.ServeHTTP(w, r)
			}
		})
	}
}

// One address that sends many bodies slowly must not take every place.
func TestSlowSendersOfOneAddressLeaveRoomForOthers(t *testing.T) {
	n := setup(t, Config{MaxBodies: 10, MaxBodiesPerClient: 3})
	slow := func(addr string) (*http.Request, *io.PipeWriter) {
		body, feed := io.Pipe()
		r := request("github", signed(t, signing.GitHub, vectorSecret, "", vectorBody, time.Now()), body)
		r.RemoteAddr, r.ContentLength = addr, -1
		return r, feed
	}
	var feeds []*io.PipeWriter
	var wg sync.WaitGroup
	for range 3 {
		r, feed := slow("203.0.113.1:1")
		feeds = append(feeds, feed)
		wg.Go(func() { n.serve(r) })
		if _, err := feed.Write(vectorBody[:1]); err != nil { // it has been read: the place is taken
			t.Fatal(err)
		}
	}
	r, feed := slow("203.0.113.1:2")
	_ = feed.Close()
	n.expect(n.serve(r), http.StatusServiceUnavailable, OutcomeBusy)
	r = request("standard", genuine(t, "msg_1", vectorBody), bytes.NewReader(vectorBody))
	r.RemoteAddr = "203.0.113.2:1"
	n.expect(n.serve(r), http.StatusAccepted, OutcomeBuffered)
	if got := n.in.Stats(); got.Bodies != 3 || got.Known != 2 {
		t.Errorf("stats %+v", got)
	}
	for _, feed := range feeds {
		_ = feed.Close()
	}
	wg.Wait()
	if len(n.in.senders.counts) != 0 {
		t.Errorf("still counted: %v", n.in.senders.counts)
	}
}

func TestNodeHasABoundOfItsOwnForBodies(t *testing.T) {
	n := setup(t, Config{MaxBodies: 1})
	n.in.bodies.take(1)
	w := n.post("standard", genuine(t, "msg_1", vectorBody), vectorBody)
	n.expect(w, http.StatusServiceUnavailable, OutcomeBusy)
	n.in.bodies.give(1)
	n.expect(n.post("standard", genuine(t, "msg_1", vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
}

func BenchmarkAccept(b *testing.B) {
	n := setup(b, Config{})
	n.in.cfg.Observer = Observer{}
	n.in.enqueuer = acceptAll{}
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body := bytes.Repeat([]byte("x"), size)
			r := request("github", signed(b, signing.GitHub, vectorSecret, "", body, time.Now()), nil)
			w := &discard{http.Header{}}
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(size)
				n.in.ServeHTTP(w, r)
			}
		})
	}
}

// acceptAll is a store that costs nothing.
type acceptAll struct{}

func (acceptAll) Ready() error { return nil }

func (acceptAll) Enqueue(_ context.Context, m *Message) (Receipt, error) {
	return Receipt{ID: m.ID}, nil
}
