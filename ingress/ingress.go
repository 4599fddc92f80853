package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Ports are what an [Ingress] needs of the rest of the node.
type Ports struct {
	// Enqueuer makes events durable. Required.
	Enqueuer Enqueuer
	// Spool holds large bodies. Required.
	Spool Spool
	// Sources reads the node's own sources. Required, unless
	// [Config].ControlPlane is set.
	Sources Sources
	// Quota limits events. Default: a [LocalQuota].
	Quota Quota
}

// Ingress receives webhooks. New makes one that serves as a handler; Start opens
// its listeners, Stop ends everything. See the package's text for what it does
// with a request.
type Ingress struct {
	cfg      Config
	log      *slog.Logger
	sampled  *sampledLog
	enqueuer Enqueuer
	spool    Spool
	quota    Quota
	plane    *ControlPlane // nil = the node's own sources

	tenantQuota atomic.Pointer[RateLimit] // nil = none

	cache    *sourceCache
	failures *failures
	bodies   budget        // being received
	senders  *clientCounts // of those bodies
	memory   budget        // bytes
	disk     budget        // bytes
	decoders chan struct{}
	inFlight tracker

	life   sync.Mutex             // held during Start and Stop
	server atomic.Pointer[server] // nil before Start; written under life
	ended  atomic.Bool            // written under life
}

// New returns an ingress, or every fault of cfg.
func New(cfg Config, ports Ports) (*Ingress, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if ports.Enqueuer == nil || ports.Spool == nil {
		errs = append(errs, errors.New("ports: enqueuer and spool are required"))
	}
	if (ports.Sources == nil) == (cfg.ControlPlane == nil) {
		errs = append(errs, errors.New("control_plane: either it or the node's own sources are needed, not both"))
	}
	in := &Ingress{
		cfg: cfg, log: cfg.Logger, sampled: &sampledLog{log: cfg.Logger},
		enqueuer: ports.Enqueuer, spool: ports.Spool, quota: ports.Quota,
		decoders: make(chan struct{}, max(0, cfg.Decoders)), senders: newClientCounts(cfg.MaxBodiesPerClient, nil),
	}
	in.tenantQuota.Store(cfg.TenantQuota)
	in.bodies.max, in.memory.max, in.disk.max = cfg.MaxBodies, cfg.MaxMemory, cfg.MaxSpool
	if in.quota == nil {
		in.quota = NewLocalQuota()
	}
	sources := ports.Sources
	if cfg.ControlPlane != nil {
		var err error
		if in.plane, err = NewControlPlane(*cfg.ControlPlane); err != nil {
			errs = append(errs, err)
		}
		sources = in.plane
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("ingress config: %w", err)
	}
	if err := in.remember(sources); err != nil {
		return nil, fmt.Errorf("ingress: %w", err)
	}
	return in, nil
}

func (in *Ingress) remember(sources Sources) (err error) {
	if in.failures, err = newFailures(in.cfg.Failures); err != nil {
		return err
	}
	in.cache, err = newSourceCache(&in.cfg, sources, in.plane != nil, in.sampled)
	return err
}

// Forget drops what is remembered of a source, or with source "" of all of a
// tenant's. Call it after every change of the configuration; the next request
// reads it anew.
func (in *Ingress) Forget(tenant, source string) { in.cache.forget(tenant, source) }

// Stats are gauges of one moment.
type Stats struct {
	Bodies      int64 // being received
	MemoryBytes int64 // of them in memory, beyond the first 4 KiB of each
	SpoolBytes  int64 // of them in files
	Known       int   // sources in the cache
	Unknown     int   // absences in the cache
}

// Stats returns what the ingress holds.
func (in *Ingress) Stats() Stats {
	in.cache.mu.Lock()
	known, unknown := in.cache.known.Len(), in.cache.unknown.Len()
	in.cache.mu.Unlock()
	return Stats{
		Bodies: in.bodies.used.Load(), MemoryBytes: in.memory.used.Load(), SpoolBytes: in.disk.used.Load(),
		Known: known, Unknown: unknown,
	}
}

var errEnded = errors.New("ingress was stopped and cannot be started again")

// Start opens the listeners. A second call does nothing.
func (in *Ingress) Start(ctx context.Context) error {
	in.life.Lock()
	defer in.life.Unlock()
	switch {
	case in.ended.Load():
		return errEnded
	case in.server.Load() != nil:
		return nil
	}
	s, err := startServer(ctx, in)
	if err != nil {
		return fmt.Errorf("start ingress: %w", err)
	}
	in.server.Store(s)
	return nil
}

// Stop takes no more connections, lets requests end and closes everything. When
// ctx ends first, or after [Config].StopTimeout if it has no deadline, what still
// runs is cut off. A second call does nothing.
func (in *Ingress) Stop(ctx context.Context) error {
	in.life.Lock()
	defer in.life.Unlock()
	if in.ended.Swap(true) {
		return nil
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, in.cfg.StopTimeout)
		defer cancel()
	}
	var errs []error
	if s := in.server.Load(); s != nil {
		errs = append(errs, s.stop(ctx))
	}
	errs = append(errs, in.inFlight.wait(ctx))
	in.cache.close()
	if in.plane != nil {
		in.plane.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop ingress: %w", err)
	}
	return nil
}
