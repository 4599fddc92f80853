package api

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// fakeNode is a node in memory: just enough to see what the API passes on.
// Methods that no test needs panic through the nil interface.
type fakeNode struct {
	Node
	mu        sync.Mutex
	published []engine.EventInput
	byID      map[string]engine.EventInput
	fail      error
	notReady  error
	created   []engine.SubscriberInput
	filter    engine.DeliveryFilter
	page      engine.Page
}

func (f *fakeNode) Version() string { return "test" }
func (f *fakeNode) Ready() error    { return f.notReady }

func (f *fakeNode) Publish(_ context.Context, tenant string, in engine.EventInput) (engine.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return engine.Receipt{}, f.fail
	}
	if tenant == "none" {
		return engine.Receipt{}, engine.ErrNotFound
	}
	if _, again := f.byID[in.ID]; again && in.ID != "" {
		return engine.Receipt{ID: in.ID, Deduplicated: true}, nil
	}
	if f.byID == nil {
		f.byID = map[string]engine.EventInput{}
	}
	f.byID[in.ID] = in
	f.published = append(f.published, in)
	return engine.Receipt{ID: in.ID, Deliveries: 2}, nil
}

func (f *fakeNode) PublishBatch(ctx context.Context, tenant string, in []engine.EventInput) []engine.PublishResult {
	out := make([]engine.PublishResult, len(in))
	for i, e := range in {
		out[i].Receipt, out[i].Err = f.Publish(ctx, tenant, e)
	}
	return out
}

func (f *fakeNode) GetEvent(_ context.Context, tenant, id string) (*delivery.Event, error) {
	if tenant != "t1" || id != "gh:d/1" {
		return nil, engine.ErrNotFound
	}
	return &delivery.Event{
		ID: id, Topic: "gh.push", ContentType: "application/json", Payload: []byte(`{"a":1}`), Size: 7,
		Headers: []delivery.Header{{Name: "X-Github-Event", Value: "push"}, {Name: "X-Many", Value: "1"}, {Name: "X-Many", Value: "2"}},
	}, nil
}

func (f *fakeNode) CreateSubscriber(_ context.Context, _ string, in engine.SubscriberInput) (*delivery.Subscriber, error) {
	f.created = append(f.created, in)
	if in.URL == nil {
		return nil, &engine.InvalidError{Fields: []engine.FieldError{{Field: "url", Rule: "required", Hint: "give it"}}}
	}
	out := f.subscriber(*in.URL)
	if in.Reserved != nil {
		out.Reserved = *in.Reserved
	}
	return out, nil
}

func (f *fakeNode) subscriber(url string) *delivery.Subscriber {
	return &delivery.Subscriber{
		ID: "ep1", URL: url, Topics: []string{"*"}, Timeout: time.Second, CreatedAt: time.Unix(1, 0),
		Headers: map[string]string{"X-Key": "hush"},
		Signing: []delivery.SigningScheme{{Scheme: "standard", Secrets: []delivery.Secret{{Value: "whsec_hush"}}}},
		TLS:     &delivery.TLSMaterial{ClientCertPEM: []byte("cert"), ClientKeyPEM: []byte("hush")},
	}
}

func (f *fakeNode) GetSubscriber(_ context.Context, tenant, id string) (*delivery.Subscriber, engine.SubscriberStatus, error) {
	if tenant != "t1" || id != "ep1" {
		return nil, engine.SubscriberStatus{}, engine.ErrNotFound
	}
	return f.subscriber("https://a.example/"), engine.SubscriberStatus{Breaker: "open", Waiting: delivery.ReasonBreakerOpen}, nil
}

func (f *fakeNode) ListSubscribers(_ context.Context, _ string, p engine.Page) ([]*delivery.Subscriber, string, error) {
	f.page = p
	return []*delivery.Subscriber{f.subscriber("https://a.example/")}, "more", nil
}

func (f *fakeNode) ListDeliveries(_ context.Context, filter engine.DeliveryFilter, p engine.Page) ([]engine.DeliveryInfo, string, error) {
	f.filter, f.page = filter, p
	return nil, "", nil
}

func (f *fakeNode) GetTenant(context.Context, string) (*delivery.Tenant, error) {
	return nil, errors.New("disk /secret/path on fire")
}

// fakeTokens are the tokens of the fake node by their text.
var fakeTokens = map[string]engine.Token{
	"reads":      {ID: "reads", Scope: engine.TokenRead},
	"reads-t1":   {ID: "readst1", Scope: engine.TokenRead, Tenant: "t1"},
	"publish-t1": {ID: "publisht1", Scope: engine.TokenPublish, Tenant: "t1"},
	"admin":      {ID: "admin", Scope: engine.TokenAdmin},
}

func (f *fakeNode) AuthenticateToken(text string) (engine.Token, error) {
	if text == "expired" {
		return engine.Token{}, engine.ErrTokenExpired
	}
	t, ok := fakeTokens[text]
	if !ok {
		return t, engine.ErrToken
	}
	return t, nil
}

func (f *fakeNode) GetDelivery(context.Context, string) (engine.DeliveryInfo, []delivery.TimelineEntry, error) {
	return engine.DeliveryInfo{ID: "d", Tenant: "t2"}, nil, nil
}

func (f *fakeNode) DeliveryPayload(_ context.Context, id string) (*delivery.Event, io.ReadCloser, error) {
	if id != "d" {
		return nil, nil, engine.ErrNotFound
	}
	return &delivery.Event{ContentType: "text/html", Size: 4}, io.NopCloser(strings.NewReader("<b/>")), nil
}

// countingNode takes events and forgets them, and knows how many large ones were
// being published at once.
type countingNode struct {
	fakeNode
	published, large, most atomic.Int64
}

func (c *countingNode) Publish(_ context.Context, _ string, in engine.EventInput) (engine.Receipt, error) {
	if len(in.Payload) > largeBody {
		c.most.Store(max(c.most.Load(), c.large.Add(1)))
		runtime.Gosched()
		c.large.Add(-1)
	}
	c.published.Add(1)
	return engine.Receipt{ID: in.ID, Deliveries: 1}, nil
}

func (c *countingNode) PublishBatch(ctx context.Context, tenant string, in []engine.EventInput) []engine.PublishResult {
	out := make([]engine.PublishResult, len(in))
	for i, e := range in {
		out[i].Receipt, out[i].Err = c.Publish(ctx, tenant, e)
	}
	return out
}
