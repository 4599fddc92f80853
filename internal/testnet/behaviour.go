package testnet

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Behaviour says how a receiver answers. The zero value answers 200 at once.
type Behaviour struct {
	Status     int           // answer; 0 = 200
	RetryAfter string        // header of an answer that is not 2xx
	Delay      time.Duration // before the headers
	Drip       time.Duration // one body byte per Drip, until DripBytes or the peer leaves
	DripBytes  int           // 0 with Drip = for ever
	Drop       bool          // end the connection or stream without an answer
	FailFirst  int           // answer this many requests with FailStatus, then as above
	FailStatus int           // 0 = 503
	FailEvery  int           // of every N requests one gets FailStatus; 0 = none
	Body       string        // answer body
	Location   string        // header of a 3xx
}

// ParseBehaviour reads "status=503,retry-after=1,delay=2s,drip=1s,drop,fail-first=3".
func ParseBehaviour(spec string) (Behaviour, error) {
	var b Behaviour
	for part := range strings.SplitSeq(spec, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		if err := b.set(name, value); err != nil {
			return Behaviour{}, fmt.Errorf("behaviour %q: %w", part, err)
		}
	}
	return b, nil
}

func (b *Behaviour) set(name, value string) error {
	var err error
	switch name {
	case "status":
		b.Status, err = parseStatus(value)
	case "fail-status":
		b.FailStatus, err = parseStatus(value)
	case "retry-after":
		b.RetryAfter = value
	case "location":
		b.Location = value
	case "body":
		b.Body = value
	case "delay":
		b.Delay, err = time.ParseDuration(value)
	case "drip":
		b.Drip, err = time.ParseDuration(value)
	case "drip-bytes":
		b.DripBytes, err = strconv.Atoi(value)
	case "fail-first":
		b.FailFirst, err = strconv.Atoi(value)
	case "fail-every":
		b.FailEvery, err = strconv.Atoi(value)
	case "drop":
		b.Drop = value != "false"
	default:
		return fmt.Errorf("unknown; use status, retry-after, delay, drip, drip-bytes, drop, fail-first, fail-status, fail-every, body, location")
	}
	return err
}

func parseStatus(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 200 || n > 599 {
		return 0, fmt.Errorf("want a status from 200 to 599")
	}
	return n, nil
}

// answer writes the response to the n-th request (from 1).
func (b Behaviour) answer(w http.ResponseWriter, r *http.Request, n int64) (status int) {
	status = max(b.Status, 0)
	if status == 0 {
		status = http.StatusOK
	}
	if n <= int64(b.FailFirst) || b.FailEvery > 0 && n%int64(b.FailEvery) == 0 {
		if status = b.FailStatus; status == 0 {
			status = http.StatusServiceUnavailable
		}
	}
	if b.Delay > 0 && !wait(r, b.Delay) {
		return 0
	}
	if b.Drop {
		panic(http.ErrAbortHandler) // net/http and http3 both end the exchange here
	}
	if b.RetryAfter != "" && status >= 300 {
		w.Header().Set("Retry-After", b.RetryAfter)
	}
	if b.Location != "" && status >= 300 && status < 400 {
		w.Header().Set("Location", b.Location)
	}
	w.WriteHeader(status)
	if b.Drip > 0 {
		b.drip(w, r)
		return status
	}
	_, _ = io.WriteString(w, b.Body)
	return status
}

func (b Behaviour) drip(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	for i := 0; b.DripBytes == 0 || i < b.DripBytes; i++ {
		if _, err := w.Write([]byte{'.'}); err != nil || flush.Flush() != nil || !wait(r, b.Drip) {
			return
		}
	}
}

// wait returns false when the peer left first.
func wait(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// live holds a behaviour that can be changed while requests run.
type live struct{ p atomic.Pointer[Behaviour] }

func (l *live) set(b Behaviour) { l.p.Store(&b) }
func (l *live) get() Behaviour  { return *l.p.Load() }
