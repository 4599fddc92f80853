package demo

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// receiver is one of the demo's four, with the latencies it saw.
type receiver struct {
	name, about string
	*testnet.Receiver
	secret string

	mu      sync.Mutex
	arrived map[string]time.Time // webhook-id → first 2xx
}

// role says how one receiver is set up.
type role struct {
	name, about string
	config      testnet.Config
}

func roles() []role {
	return []role{
		{"h3", "advertises HTTP/3 by Alt-Svc", testnet.Config{HTTP3: true}},
		{"tcp", "HTTP/2 over TCP only", testnet.Config{}},
		{"dead-udp", "advertises HTTP/3 on a UDP port that nobody answers", testnet.Config{AltSvcPort: true}},
		{"flaky", "fails its first attempts: 503, Retry-After: 1", testnet.Config{
			NoHTTP2: true, Behaviour: testnet.Behaviour{FailFirst: 20, RetryAfter: "1"},
		}},
	}
}

// startReceivers starts all of them with certificates of one CA, each with a
// signing secret of its own.
func startReceivers(ca *testnet.CA) ([]*receiver, error) {
	cert, err := ca.Issue(testnet.Leaf{Names: []string{"127.0.0.1", "localhost"}})
	if err != nil {
		return nil, err
	}
	var all []*receiver
	for _, role := range roles() {
		r, err := startReceiver(role, &cert)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("receiver %s: %w", role.name, err), closeAll(all))
		}
		all = append(all, r)
	}
	return all, nil
}

func startReceiver(role role, cert *tls.Certificate) (*receiver, error) {
	secret, err := signing.GenerateSecret(signing.Standard)
	if err != nil {
		return nil, err
	}
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Scheme: signing.Standard, Secrets: []signing.Secret{secret}})
	if err != nil {
		return nil, err
	}
	r := &receiver{name: role.name, about: role.about, secret: secret.Reveal(), arrived: map[string]time.Time{}}
	config := role.config
	config.Certificate = cert
	config.Verify = func(h http.Header, body []byte) error { return verifier.Verify(h, body, time.Now()) }
	config.OnRequest = r.saw
	if r.Receiver, err = testnet.Start(config); err != nil {
		return nil, err
	}
	return r, nil
}

// saw records the first time an event was accepted.
func (r *receiver) saw(s testnet.Seen) {
	if s.Status < 200 || s.Status > 299 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.arrived[s.ID]; !again {
		r.arrived[s.ID] = s.At
	}
}

// latencies returns publish-to-receiver times, sorted.
func (r *receiver) latencies(published map[string]time.Time) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []time.Duration
	for id, at := range r.arrived {
		if from, ok := published[id]; ok {
			out = append(out, at.Sub(from))
		}
	}
	slices.Sort(out)
	return out
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

func closeAll(all []*receiver) error {
	var errs []error
	for _, r := range all {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
