package engine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/dispatcher-engine/dispatcher/ingress"
)

// ingressDir lies inside the data directory and holds bodies that are being
// received. Nothing in it was acknowledged; it is emptied at the start.
const ingressDir = "ingress-tmp"

// receive makes the ingress, if there is to be one.
func (e *Engine) receive() error {
	if e.config.Ingress == nil {
		return nil
	}
	dir := filepath.Join(e.config.Storage.Dir, ingressDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("ingress: %w", err)
	}
	spool, err := ingress.OpenSpool(dir)
	if err != nil {
		return fmt.Errorf("ingress: %w", err)
	}
	e.onStopped("ingress spool", func(context.Context) error { return spool.Close() })
	in := &intake{engine: e, remote: e.config.Ingress.ControlPlane != nil}
	ports := ingress.Ports{Enqueuer: in, Spool: spool}
	if !in.remote {
		ports.Sources = in
	}
	if e.ingress, err = ingress.New(*e.config.Ingress, ports); err != nil {
		return err
	}
	e.onStopped("ingress", e.ingress.Stop)
	return nil
}

// listen opens the ingress's listeners. It takes events from then on: to store
// them needs no scheduler.
func (e *Engine) listen(ctx context.Context) error {
	if e.ingress == nil {
		return nil
	}
	if err := e.ingress.Start(ctx); err != nil {
		return err
	}
	return e.own.set(e, nil, []netip.AddrPort{e.ingress.Addr()})
}

// IngressURL returns the scheme and address of the ingress, "" if there is none.
func (e *Engine) IngressURL() string {
	if e.ingress == nil {
		return ""
	}
	scheme := "http://"
	if e.config.Ingress.CertFile != "" {
		scheme = "https://"
	}
	return scheme + e.ingress.Addr().String()
}

// IngressStats returns what the ingress holds at the moment; nothing without one.
func (e *Engine) IngressStats() ingress.Stats {
	if e.ingress == nil {
		return ingress.Stats{}
	}
	return e.ingress.Stats()
}

// ownListeners are the addresses of the API and of the ingress, which come to
// be known at different times.
type ownListeners struct {
	mu      sync.Mutex
	api     []netip.AddrPort
	ingress []netip.AddrPort
}

// set replaces the lists that are not nil and tells the address policy. One
// address stands for TCP and UDP.
func (o *ownListeners) set(e *Engine, api, in []netip.AddrPort) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if api != nil {
		o.api = slices.Clone(api)
	}
	if in != nil {
		o.ingress = slices.Clone(in)
	}
	if err := e.guard.SetOwnListeners(slices.Concat(o.api, o.ingress)); err != nil {
		return fmt.Errorf("own listeners: %w", err)
	}
	return nil
}

// SetOwnListeners tells the address policy which addresses, beside those of the
// ingress, are ours, so that no subscriber can make the node talk to itself.
func (e *Engine) SetOwnListeners(listeners []netip.AddrPort) error {
	return e.own.set(e, listeners, nil)
}
