package api

import (
	"context"
	"encoding/json"
	"io"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/api/dashboard"
)

// Node is what the API needs of the engine; *[engine.Engine] is one. Methods
// validate their input and return *[engine.InvalidError], [engine.ErrNotFound],
// *[engine.ConflictError], *[engine.UnavailableError] or an internal error; the
// API turns those into problem documents.
type Node interface {
	Tokens
	Tenants
	Subscribers
	Sources
	Publisher
	Deliveries
	Replays
	Protocols
	Maintenance
	Health
	dashboard.Figures
	// DeadGroups groups dead letters for the dashboard.
	DeadGroups(ctx context.Context, f engine.DeliveryFilter) (engine.DeadGroups, error)
}

// Tenants is the tenants' part of [Node].
type Tenants interface {
	PutTenant(ctx context.Context, id string, in engine.TenantInput) (t *delivery.Tenant, created bool, err error)
	GetTenant(ctx context.Context, id string) (*delivery.Tenant, error)
	ListTenants(ctx context.Context, page engine.Page) ([]*delivery.Tenant, string, error)
	DeleteTenant(ctx context.Context, id string) error
}

// Sources is the part of [Node] about what the ingress receives. A source's JSON
// masks its secrets.
type Sources interface {
	// PutSource takes the JSON of the settings as it was received.
	PutSource(ctx context.Context, tenant, id string, raw json.RawMessage) (s *engine.Source, created bool, err error)
	GetSource(ctx context.Context, tenant, id string) (*engine.Source, error)
	ListSources(ctx context.Context, tenant string, page engine.Page) ([]*engine.Source, string, error)
	DeleteSource(ctx context.Context, tenant, id string) error
}

// Subscribers is the subscribers' part of [Node]. Returned subscribers carry
// their secrets in memory; only the answer that made a secret shows it.
type Subscribers interface {
	CreateSubscriber(ctx context.Context, tenant string, in engine.SubscriberInput) (*delivery.Subscriber, error)
	GetSubscriber(ctx context.Context, tenant, id string) (*delivery.Subscriber, engine.SubscriberStatus, error)
	ListSubscribers(ctx context.Context, tenant string, page engine.Page) ([]*delivery.Subscriber, string, error)
	// UpdateSubscriber applies the fields that are set (a JSON merge patch).
	UpdateSubscriber(ctx context.Context, tenant, id string, in engine.SubscriberInput) (*delivery.Subscriber, error)
	DeleteSubscriber(ctx context.Context, tenant, id string) error
	PauseSubscriber(ctx context.Context, tenant, id string) (*delivery.Subscriber, error)
	ResumeSubscriber(ctx context.Context, tenant, id string) (*delivery.Subscriber, error)
	// RotateSecret makes (or takes) a new secret of one scheme and keeps the old
	// one valid for keep; it returns the subscriber with the new secret first.
	RotateSecret(ctx context.Context, tenant, id string, in engine.RotateInput) (*delivery.Subscriber, error)
	// TestSubscriber publishes one synthetic event to this subscriber alone.
	TestSubscriber(ctx context.Context, tenant, id string) (engine.Receipt, error)
	// ReplaySubscriber replays dead (and with force delivered) deliveries of one
	// subscriber in a time window.
	ReplaySubscriber(ctx context.Context, tenant, id string, in engine.ReplayInput) (engine.ReplayResult, error)
}

// Publisher is the publishing part of [Node].
type Publisher interface {
	// Publish returns when the event is durable, or an error when it is not.
	Publish(ctx context.Context, tenant string, in engine.EventInput) (engine.Receipt, error)
	// PublishBatch publishes many; the results line up with the input. Entries
	// that are durable have a nil Err. One batch shares one sync.
	PublishBatch(ctx context.Context, tenant string, in []engine.EventInput) []engine.PublishResult
	GetEvent(ctx context.Context, tenant, id string) (*delivery.Event, error)
	ListEvents(ctx context.Context, tenant string, page engine.Page) ([]*delivery.Event, string, error)
	DeleteEvent(ctx context.Context, tenant, id string) error
	EventDeliveries(ctx context.Context, tenant, id string, page engine.Page) ([]engine.DeliveryInfo, string, error)
}

// Deliveries is the deliveries' part of [Node].
type Deliveries interface {
	GetDelivery(ctx context.Context, id string) (engine.DeliveryInfo, []delivery.TimelineEntry, error)
	ListDeliveries(ctx context.Context, f engine.DeliveryFilter, page engine.Page) ([]engine.DeliveryInfo, string, error)
	// DeliveryPayload opens what a delivery sends; the caller closes it.
	DeliveryPayload(ctx context.Context, id string) (*delivery.Event, io.ReadCloser, error)
	ReplayDelivery(ctx context.Context, id string, force bool) (engine.DeliveryInfo, error)
	ReplayDead(ctx context.Context, f engine.DeliveryFilter, in engine.ReplayInput) (engine.ReplayResult, error)
	// DeadGroups groups dead letters by what they died of.
	DeadGroups(ctx context.Context, f engine.DeliveryFilter) (engine.DeadGroups, error)
	PurgeDead(ctx context.Context, f engine.DeliveryFilter) (int, error)
}

// Health is the health part of [Node].
type Health interface {
	// Ready returns nil, or an error whose text an operator can act on.
	Ready() error
	// Version is the build's version.
	Version() string
}
