package ingress

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a key pair in two files. When they change, the next handshake
// loads them; there is no goroutine that watches. A pair that cannot be loaded,
// as while only one of its files has been replaced, leaves the old one in use.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	observer          *Observer

	mu      sync.Mutex
	pair    *tls.Certificate
	stamps  [2]stamp
	checked time.Time
	fault   string // of the last failed load, so that each is logged once
}

// stamp tells one version of a file from the next.
type stamp struct {
	modified time.Time
	size     int64
}

// checkEvery is how often the files are looked at, at most.
const checkEvery = time.Second

func loadCertificate(cfg *Config) (*certificate, error) {
	c := &certificate{certFile: cfg.CertFile, keyFile: cfg.KeyFile, log: cfg.Logger, observer: &cfg.Observer}
	stamps, err := c.stat()
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	if err := c.loadLocked(stamps); err != nil { // nobody else has it yet
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	c.checked = time.Now()
	return c, nil
}

func (c *certificate) stat() (out [2]stamp, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return out, err
		}
		out[i] = stamp{info.ModTime(), info.Size()}
	}
	return out, nil
}

func (c *certificate) loadLocked(stamps [2]stamp) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	event := CertificateEvent{Err: err}
	if err == nil {
		c.pair, c.stamps, c.fault = &pair, stamps, ""
		event.NotAfter = pair.Leaf.NotAfter
	}
	if c.observer.Certificate != nil {
		c.observer.Certificate(event)
	}
	return err
}

// get returns the pair for a handshake, after a look at the files.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.checked) < checkEvery {
		return c.pair, nil
	}
	c.checked = now
	stamps, err := c.stat()
	if err == nil && stamps != c.stamps {
		if err = c.loadLocked(stamps); err == nil {
			c.log.Info("certificate_loaded", "not_after", c.pair.Leaf.NotAfter)
		}
	}
	if err != nil && err.Error() != c.fault {
		c.fault = err.Error()
		c.log.Warn("certificate_not_loaded", "error", c.fault, "serving_until", c.pair.Leaf.NotAfter)
	}
	return c.pair, nil
}

// config returns the TLS configuration for the given application protocols.
func (c *certificate) config(protos ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protos, GetCertificate: c.get}
}
