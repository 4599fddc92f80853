package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/sched"
	"github.com/dispatcher-engine/dispatcher/storage"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// Engine is one node. New opens its store, Start begins to deliver, Stop ends
// everything; between New and Start events can already be published.
//
// Stop order (last started, first stopped): the ingress ends, then the scheduler
// lets attempts in flight end and gives the rest back without cost, selector and
// transport close their connections, the store writes what is left and closes.
type Engine struct {
	config    Config
	logger    *slog.Logger
	guard     *netguard.Guard
	store     *storage.Store
	registry  *storage.Registry
	directory *directory
	transport *transport.Transport
	selector  *protoselect.Selector
	sched     *sched.Scheduler
	cleaner   *cleaner
	recoverer *recoverer
	keys      keyMaker
	ingress   *ingress.Ingress // nil = none

	alarms  *alarms
	tokens  *tokens
	census  *census
	replays *replays

	defaults   atomic.Pointer[Defaults]
	operatorID atomic.Pointer[string] // see [Operations]

	sources sync.Mutex // one change of a source and its origin at a time
	own     ownListeners

	reserving sync.Mutex // one change of what is reserved at a time; see reserved

	wg       sync.WaitGroup // short errands
	errands  sync.Mutex     // guards stopping: none is added once Stop waits
	stopping bool
	onStop   []stopper // in the order of starting
	stopped  sync.Once
	stopErr  error
}

type stopper struct {
	name string
	stop func(context.Context) error
}

// New opens the store and makes the parts.
func New(config Config) (*Engine, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("engine config: %w", err)
	}
	e := &Engine{config: config, logger: config.Logger}
	e.SetDefaults(Defaults{config.DefaultConcurrency, config.DefaultTimeout, config.DefaultMaxShare})
	e.operatorID.Store(&config.Operations.Tenant)
	if err := e.assemble(); err != nil {
		return nil, errors.Join(err, e.Stop(context.Background()))
	}
	return e, nil
}

func (e *Engine) assemble() error {
	var err error
	if e.guard, err = netguard.New(e.config.Guard); err != nil {
		return fmt.Errorf("address policy: %w", err)
	}
	e.recoverer = newRecoverer(e)
	config := e.config.Storage
	config.Observer.Failed = both(config.Observer.Failed, e.recoverer.notice)
	e.alarms = newAlarms(e.alarmPorts())
	disk := config.Observer.Disk
	config.Observer.Disk = func(free, total uint64, full bool) {
		if disk != nil {
			disk(free, total, full)
		}
		e.alarms.disk(free, total, full)
	}
	if e.store, err = storage.Open(config); err != nil {
		return err // it says what was opened
	}
	e.onStopped("store", func(context.Context) error { return e.store.Close() })
	e.registry = e.store.Registry()
	e.alarms.records = alarmDocs{e.registry}
	if e.directory, err = newDirectory(e.registry); err != nil {
		return err
	}
	if err := e.loadTokens(); err != nil {
		return err
	}
	if err := e.loadReplays(); err != nil {
		return err
	}
	e.watch()
	if err := e.connect(); err != nil {
		return err
	}
	if err := e.schedule(); err != nil {
		return err
	}
	return e.receive()
}

// watch keeps the cache true.
func (e *Engine) watch() {
	stop := e.registry.Watch(func(changes []storage.Change) {
		for _, c := range changes {
			if c.Doc.Kind != "" {
				continue
			}
			e.directory.forget(c.Tenant, c.Subscriber, c.Deleted)
			e.alarms.changed(c.Tenant, c.Subscriber, c.Deleted)
			e.replays.gone(c)
		}
	})
	e.onStopped("watch", func(context.Context) error { stop(); return nil })
}

// connect makes transport and selector.
func (e *Engine) connect() error {
	config := e.config.Transport
	config.Guard = e.guard
	config.Source4 = cmp.Or(e.config.Egress.Source4, config.Source4)
	config.Source6 = cmp.Or(e.config.Egress.Source6, config.Source6)
	// The selector is made after the transport, and is there before the first
	// request that could stall.
	stalled := config.Observer.Stalled
	config.Observer.Stalled = func(r delivery.Route, alt delivery.Alternative) {
		if stalled != nil {
			stalled(r, alt)
		}
		e.selector.Stalled(r, alt)
	}
	var err error
	if e.transport, err = transport.New(config); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	e.onStopped("transport", e.transport.Close)
	e.checkSources()
	selection := e.config.Selector
	selection.EgressHTTP3 = e.config.udpLeaves()
	if selection.Memory == nil {
		selection.Memory = protocolMemory{e.registry}
	}
	if e.selector, err = protoselect.New(selection, dialer{e.transport}); err != nil {
		return err
	}
	e.onStopped("protoselect", e.selector.Stop)
	return nil
}

// schedule makes the scheduler and ties it to the store's commits.
func (e *Engine) schedule() error {
	config := e.config.Sched
	config.Disable = e.disable
	e.alarmed(&config.Observer)
	if err := e.shareLimits(&config); err != nil {
		return err
	}
	send := &sender{
		directory: e.directory, selector: e.selector, payloads: e.store,
		userAgent: "dispatcher/" + e.config.Version, traced: e.config.Tracing != nil, leaseHeld: func() bool { return e.store.Healthy() == nil },
	}
	send.batches = newBatches(send.post)
	var err error
	if e.sched, err = sched.New(e.store, e.directory, send, config); err != nil {
		return err
	}
	e.store.SetHooks(storage.Hooks{Admit: e.sched.Admit, Committed: e.sched.Committed, Aborted: e.sched.Aborted})
	e.cleaner = newCleaner(e)
	e.census = newCensus(e)
	return nil
}

// shareLimits puts the token buckets into Redis where that is configured.
func (e *Engine) shareLimits(config *sched.Config) error {
	if e.config.Redis == nil {
		return nil
	}
	redis := *e.config.Redis
	redis.Logger = config.Logger
	limiter, err := sched.NewRedisLimiter(redis)
	if err != nil {
		return fmt.Errorf("shared limits: %w", err)
	}
	e.onStopped("shared limits", func(context.Context) error { return limiter.Close() })
	config.Limiter = limiter
	return nil
}

// Start begins to deliver, what was pending first.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.store.Start(ctx); err != nil {
		return fmt.Errorf("start store: %w", err)
	}
	e.recoverer.start()
	e.onStopped("recoverer", e.recoverer.stop)
	// Before the first delivery, so that the address policy knows its address.
	if err := e.listen(ctx); err != nil {
		return err
	}
	if err := e.selector.Start(ctx); err != nil {
		return fmt.Errorf("start selector: %w", err)
	}
	// It stops after the scheduler, whose last outcomes it may have to tell of.
	e.alarms.start()
	e.onStopped("alarms", e.alarms.stop)
	if err := e.reserve(ctx); err != nil {
		return fmt.Errorf("start scheduler: %w", err)
	}
	if err := e.sched.Start(ctx); err != nil {
		return fmt.Errorf("start scheduler: %w", err)
	}
	e.onStopped("sched", e.sched.Stop)
	e.cleaner.start()
	e.onStopped("cleaner", e.cleaner.stop)
	e.census.start()
	e.onStopped("census", e.census.stop)
	e.replays.start()
	e.onStopped("replays", e.replays.stop)
	if e.ingress != nil {
		e.onStopped("ingress", e.ingress.Stop) // first of all
	}
	return nil
}

// onStopped registers what Stop does; the last registered is done first.
func (e *Engine) onStopped(name string, stop func(context.Context) error) {
	e.onStop = append(e.onStop, stopper{name, stop})
}

// Stop ends everything in reverse order. It is idempotent, and bounded by ctx
// as far as the parts are.
func (e *Engine) Stop(ctx context.Context) error {
	e.stopped.Do(func() {
		e.errands.Lock()
		e.stopping = true
		e.errands.Unlock()
		e.wg.Wait() // they are bounded by their own timeouts
		var errs []error
		for _, s := range slices.Backward(e.onStop) {
			if err := s.stop(ctx); err != nil {
				errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
			}
		}
		e.stopErr = errors.Join(errs...)
	})
	return e.stopErr
}

// Ready returns nil when publishes are accepted, else why not.
func (e *Engine) Ready() error { return e.store.Accepting() }

// both calls two observers of one event; either may be nil.
func both[T any](a, b func(T)) func(T) {
	if a == nil {
		return b
	}
	return func(v T) {
		a(v)
		b(v)
	}
}

// Version is the build's version.
func (e *Engine) Version() string { return e.config.Version }
