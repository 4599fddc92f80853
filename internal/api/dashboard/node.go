package dashboard

import (
	"context"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// Node is what the dashboard needs of the engine; *[engine.Engine] is one.
type Node interface {
	Ready() error
	Version() string
	Figures
	Endpoints
	Deliveries
	Replays
	Protocols
}

// Figures are the gauges of the overview. None of them scans a queue: the backlog
// is counted in the background.
type Figures interface {
	Backlog() engine.Backlog
	Connections(p delivery.Protocol) (live, idle int)
	InFlight() int
	IngressURL() string
}

// Endpoints are tenants, subscribers and sources.
type Endpoints interface {
	ListTenants(ctx context.Context, page engine.Page) ([]*delivery.Tenant, string, error)
	GetTenant(ctx context.Context, id string) (*delivery.Tenant, error)
	ListSubscribers(ctx context.Context, tenant string, page engine.Page) ([]*delivery.Subscriber, string, error)
	GetSubscriber(ctx context.Context, tenant, id string) (*delivery.Subscriber, engine.SubscriberStatus, error)
	PauseSubscriber(ctx context.Context, tenant, id string) (*delivery.Subscriber, error)
	ResumeSubscriber(ctx context.Context, tenant, id string) (*delivery.Subscriber, error)
	RotateSecret(ctx context.Context, tenant, id string, in engine.RotateInput) (*delivery.Subscriber, error)
	TestSubscriber(ctx context.Context, tenant, id string) (engine.Receipt, error)
	ListSources(ctx context.Context, tenant string, page engine.Page) ([]*engine.Source, string, error)
}

// Deliveries are deliveries and dead letters.
type Deliveries interface {
	GetDelivery(ctx context.Context, id string) (engine.DeliveryInfo, []delivery.TimelineEntry, error)
	ListDeliveries(ctx context.Context, f engine.DeliveryFilter, page engine.Page) ([]engine.DeliveryInfo, string, error)
	ReplayDelivery(ctx context.Context, id string, force bool) (engine.DeliveryInfo, error)
	DeadGroups(ctx context.Context, f engine.DeliveryFilter) (engine.DeadGroups, error)
}

// Replays are bulk replays, which go on without the dashboard.
type Replays interface {
	StartReplay(ctx context.Context, f engine.DeliveryFilter, perSecond float64) (engine.ReplayJob, error)
	GetReplay(ctx context.Context, id string) (engine.ReplayJob, error)
	ListReplays(ctx context.Context, tenant string, page engine.Page) ([]engine.ReplayJob, string, error)
	CancelReplay(ctx context.Context, id string) (engine.ReplayJob, error)
}

// Protocols is the protocol memory.
type Protocols interface {
	Protocols(ctx context.Context, page engine.Page) ([]engine.ProtocolRow, string, error)
	PinProtocol(ctx context.Context, authority, protocol string, ttl time.Duration) (engine.ProtocolPin, error)
	ForgetProtocol(ctx context.Context, authority string) error
	ProbeProtocol(ctx context.Context, authority string) (engine.ProbeResult, error)
}
