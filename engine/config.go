package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/sched"
	"github.com/dispatcher-engine/dispatcher/storage"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// Config is what a node is made of: one Config per part, which the engine
// completes with what connects the parts.
type Config struct {
	// Version is the build's version, for user-agent and health. Default "devel".
	Version string
	// MaxPayload bounds an event's payload in bytes. Default 25 MiB.
	MaxPayload int64
	// DefaultConcurrency, DefaultTimeout and DefaultMaxShare are those of new
	// subscribers and tenants that set none. Default: 8, 15 s, no own bound.
	DefaultConcurrency int
	DefaultTimeout     time.Duration
	DefaultMaxShare    int
	// Logger gets what an operator must know. Default: discards.
	Logger *slog.Logger

	// Tracing is told of publishes, for spans; nil = none are made.
	Tracing *Tracing

	// Operations says who hears of the node itself.
	Operations Operations
	// Guard decides which addresses may be dialled; its zero value is strict.
	Guard netguard.Config
	// Egress is how requests leave this machine.
	Egress Egress
	// Storage needs Dir.
	Storage storage.Config
	// Redis shares the token buckets with other nodes; nil = each node its own.
	Redis *sched.RedisConfig
	// Sched, Transport and Selector may be left at their zero values.
	Sched     sched.Config
	Transport transport.Config
	Selector  protoselect.Config
	// Ingress is the edge receiver; nil = none.
	Ingress *ingress.Config
}

const defaultMaxPayload = 25 << 20

func (c Config) withDefaults() Config {
	if c.Version == "" {
		c.Version = "devel"
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = defaultMaxPayload
	}
	c.DefaultConcurrency = cmp.Or(c.DefaultConcurrency, delivery.DefaultConcurrency)
	c.DefaultTimeout = cmp.Or(c.DefaultTimeout, delivery.DefaultTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Storage.Logger == nil {
		c.Storage.Logger = c.Logger.With("part", "storage")
	}
	if c.Sched.Logger == nil {
		c.Sched.Logger = c.Logger.With("part", "sched")
	}
	if c.Transport.Logger == nil {
		c.Transport.Logger = c.Logger.With("part", "transport")
	}
	if c.Selector.Logger == nil {
		c.Selector.Logger = c.Logger.With("part", "protoselect")
	}
	if c.Ingress != nil && c.Ingress.Logger == nil {
		own := *c.Ingress
		own.Logger = c.Logger.With("part", "ingress")
		c.Ingress = &own
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.MaxPayload < 1 || c.MaxPayload > 1<<30 {
		errs = append(errs, fmt.Errorf("max_payload: %d is not within 1 and 1 GiB", c.MaxPayload))
	}
	if c.Storage.Dir == "" {
		errs = append(errs, errors.New("storage.dir: must name a directory"))
	}
	return errors.Join(errs...)
}
