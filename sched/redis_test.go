package sched

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// respServer speaks just enough of the Redis protocol.
type respServer struct {
	t        *testing.T
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	answer func(args []string) string // raw reply to EVAL and EVALSHA; "" = none, ever
	loaded bool
	evals  [][]string
	trips  int // how often scripts came on a connection that had nothing left to read
	conns  map[net.Conn]struct{}
}

func newRespServer(t *testing.T, addr string) *respServer {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &respServer{t: t, listener: listener, conns: map[net.Conn]struct{}{}, answer: func([]string) string { return "*2\r\n:0\r\n:0\r\n" }}
	s.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = struct{}{}
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *respServer) addr() string { return s.listener.Addr().String() }

func (s *respServer) close() {
	s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *respServer) setAnswer(answer func([]string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *respServer) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 1<<16)
	for {
		asleep := r.Buffered() == 0
		args, err := readCommand(r)
		if err != nil {
			return
		}
		if asleep && strings.HasPrefix(strings.ToLower(args[0]), "eval") {
			s.mu.Lock()
			s.trips++
			s.mu.Unlock()
		}
		if reply := s.reply(args); reply != "" {
			if _, err := io.WriteString(conn, reply); err != nil {
				return
			}
		}
	}
}

func (s *respServer) reply(args []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch strings.ToUpper(args[0]) {
	case "EVALSHA":
		if !s.loaded {
			return "-NOSCRIPT No matching script.\r\n"
		}
	case "EVAL":
		s.loaded = true
	case "PING":
		return "+PONG\r\n"
	default:
		return "-ERR unknown command\r\n"
	}
	s.evals = append(s.evals, args[2:])
	return s.answer(args[2:])
}

// readCommand reads an array of bulk strings.
func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readCount(r, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readCount(r, '$')
		if err != nil {
			return nil, err
		}
		buf := make([]byte, size+2)
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, err
		}
		args[i] = string(buf[:size])
	}
	return args, nil
}

func readCount(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil || line == "" || line[0] != kind {
		return 0, fmt.Errorf("read %q: %w", line, err)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// patient is a limiter whose decisions may take as long as a busy machine needs.
func patient(t *testing.T, addr string, change func(*RedisConfig)) *RedisLimiter {
	cfg := RedisConfig{URL: "redis://" + addr, Timeout: 10 * time.Second, AskAgainAfter: time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	l, err := NewRedisLimiter(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

var bothLimits = Draw{
	Subscriber: 5, SubscriberLimit: delivery.RateLimit{PerSecond: 2.5, Burst: 4},
	Tenant: 7, TenantLimit: delivery.RateLimit{PerSecond: 100},
}

func TestRedisDecidesInOneRoundTrip(t *testing.T) {
	s := newRespServer(t, "127.0.0.1:0")
	l := patient(t, s.addr(), nil)
	if got := l.Take(t.Context(), bothLimits); got.Wait != 0 {
		t.Errorf("granted: %+v", got)
	}
	s.setAnswer(func([]string) string { return "*2\r\n:2\r\n:1500\r\n" })
	if got := l.Take(t.Context(), bothLimits); got.Wait != 1500*time.Microsecond || !got.Tenant {
		t.Errorf("the tenant's bucket is empty for 1.5 ms: %+v", got)
	}
	s.setAnswer(func([]string) string { return "*2\r\n:1\r\n:9\r\n" })
	if got := l.Take(t.Context(), bothLimits); got.Wait != 9*time.Microsecond || got.Tenant {
		t.Errorf("the subscriber's bucket is empty for 9 us: %+v", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.evals) != 3 {
		t.Errorf("%d scripts for 3 decisions", len(s.evals))
	}
	if got, want := fmt.Sprint(s.evals[0]), "[2 dispatcher:limit:{7}:5 dispatcher:limit:{7} 2.5 4 100 100]"; got != want {
		t.Errorf("keys and arguments %s, want %s", got, want)
	}
}

// TestDrawsThatMeetShareARoundTrip: forty draws that come while all trips are
// under way go together, each gets its own answer, and one that nobody waits for
// any more takes no token.
func TestDrawsThatMeetShareARoundTrip(t *testing.T) {
	s := newRespServer(t, "127.0.0.1:0")
	l := patient(t, s.addr(), nil)
	l.Take(t.Context(), bothLimits) // connects, and brings the script
	s.setAnswer(func(args []string) string {
		return "*2\r\n:1\r\n:" + args[1][strings.LastIndex(args[1], ":")+1:] + "\r\n"
	})
	for l.batch.mu.Lock(); l.batch.trips > 0; l.batch.mu.Lock() {
		l.batch.mu.Unlock()
		runtime.Gosched()
	}
	l.batch.trips = mostTrips // as if all were under way
	l.batch.waiting = []*question{{draw: bothLimits, until: time.Now().Add(-time.Second), answer: make(chan redisAnswer, 1)}}
	l.batch.mu.Unlock()
	s.mu.Lock()
	trips, evals := s.trips, len(s.evals)
	s.mu.Unlock()
	const draws = 40
	var done sync.WaitGroup
	for i := range draws {
		done.Go(func() {
			d := Draw{Subscriber: delivery.SubscriberNum(100 + i), SubscriberLimit: delivery.RateLimit{PerSecond: 1}, Tenant: 7} //nolint:gosec // small
			if got, want := l.Take(t.Context(), d).Wait, time.Duration(100+i)*time.Microsecond; got != want {
				t.Errorf("draw %d got the answer %s, want %s", i, got, want)
			}
		})
	}
	for l.batch.mu.Lock(); len(l.batch.waiting) < draws+1; l.batch.mu.Lock() {
		l.batch.mu.Unlock()
		runtime.Gosched()
	}
	l.batch.mu.Unlock()
	l.batch.travel(t.Context())
	done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.trips - trips; n != 1 {
		t.Errorf("%d round trips for %d draws, want 1", n, draws)
	}
	if n := len(s.evals) - evals; n != draws {
		t.Errorf("%d scripts for %d draws: one asked in vain", n, draws)
	}
}

// TestARedisThatLostTheScriptsTakesOneTokenADraw: a whole batch meets a Redis
// that was restarted; the script comes along once, and no draw counts twice.
func TestARedisThatLostTheScriptsTakesOneTokenADraw(t *testing.T) {
	s := newRespServer(t, "127.0.0.1:0")
	l := patient(t, s.addr(), nil)
	var batch []*question
	for range 10 {
		batch = append(batch, &question{draw: bothLimits, answer: make(chan redisAnswer, 1)})
	}
	l.send(t.Context(), batch)
	for _, q := range batch {
		if got := <-q.answer; got.err != nil || got.drawn.Wait != 0 {
			t.Errorf("%+v", got)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.evals) != 10 || s.trips != 2 {
		t.Errorf("%d scripts in %d round trips, want 10 in 2", len(s.evals), s.trips)
	}
}

func TestASlowRedisIsNotWaitedFor(t *testing.T) {
	s := newRespServer(t, "127.0.0.1:0")
	changes := make(chan bool, 100)
	l := patient(t, s.addr(), func(c *RedisConfig) {
		c.Timeout = 5 * time.Millisecond
		c.AskAgainAfter = time.Hour
		c.Changed = func(shared bool, _ error) { changes <- shared }
	})
	s.setAnswer(func([]string) string { return "" })
	begin := time.Now()
	if got := l.Take(t.Context(), bothLimits); got.Wait != 0 {
		t.Errorf("the local buckets are full: %+v", got)
	}
	if took := time.Since(begin); took > 500*time.Millisecond {
		t.Errorf("the decision took %s", took)
	}
	if shared := <-changes; shared || l.Shared() {
		t.Error("it still counts as shared")
	}
	// The burst of 4 is kept locally, without asking again.
	for range 3 {
		l.Take(t.Context(), bothLimits)
	}
	if got := l.Take(t.Context(), bothLimits); got.Wait == 0 {
		t.Error("the local buckets do not bound")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.evals); n > 1 {
		t.Errorf("a Redis that is away was asked %d times", n)
	}
}

func TestRedisComesBackWithoutARestart(t *testing.T) {
	s := newRespServer(t, "127.0.0.1:0")
	addr := s.addr()
	changes := make(chan bool, 100)
	l := patient(t, addr, func(c *RedisConfig) { c.Changed = func(shared bool, _ error) { changes <- shared } })
	if got := l.Take(t.Context(), bothLimits); got.Wait != 0 || !l.Shared() {
		t.Fatalf("with Redis: %+v", got)
	}
	s.close()
	l.Take(t.Context(), bothLimits)
	if shared := <-changes; shared {
		t.Error("its loss was not noticed")
	}
	back := newRespServer(t, addr)
	back.setAnswer(func([]string) string { return "*2\r\n:1\r\n:777\r\n" })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !l.Shared() {
		l.Take(ctx, bothLimits)
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatal("it never came back")
		}
	}
	if shared := <-changes; !shared {
		t.Error("its return was not told")
	}
	if got := l.Take(t.Context(), bothLimits); got.Wait != 777*time.Microsecond {
		t.Errorf("the shared bucket does not decide: %+v", got)
	}
}

func TestNonsenseFromRedisIsAFailure(t *testing.T) {
	replies := []string{"-ERR no\r\n", "+OK\r\n", "*1\r\n:0\r\n", "*2\r\n:9\r\n:0\r\n", "*2\r\n:1\r\n:-5\r\n", "$-1\r\n", "*2\r\n$1\r\nx\r\n:0\r\n"}
	for _, reply := range replies {
		s := newRespServer(t, "127.0.0.1:0")
		l := patient(t, s.addr(), func(c *RedisConfig) { c.AskAgainAfter = time.Hour })
		s.setAnswer(func([]string) string { return reply })
		if got := l.Take(t.Context(), bothLimits); got.Wait != 0 || l.Shared() {
			t.Errorf("%q: %+v, shared %v; the local buckets are full", reply, got, l.Shared())
		}
	}
}

func TestARedisURLIsNeverQuotedInAnError(t *testing.T) {
	for _, url := range []string{"http://:hunter2@host", "redis://:hunter2@host:port/x y"} {
		if _, err := NewRedisLimiter(RedisConfig{URL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}
