package engine

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// records is what the directory reads through to.
type records interface {
	SubscriberByNum(delivery.SubscriberNum) (*delivery.Subscriber, error)
	TenantByNum(delivery.TenantNum) (*delivery.Tenant, error)
	GetTenant(id string) (*delivery.Tenant, error)
}

// directory is the read-through cache of configuration records. Values are
// immutable; a change evicts and the next reader loads the new version.
//
// Invariant: a value is never put into the cache after an invalidation that
// came later than its load: the generation is compared under mu.
type directory struct {
	records records
	subs    *lru.Cache[delivery.SubscriberNum, *prepared]
	tenants *lru.Cache[delivery.TenantNum, *delivery.Tenant]
	// numbers may be out of date: a number is given once, but an id may come back
	// with another. Who reads one looks at the record's id.
	numbers *lru.Cache[string, delivery.TenantNum]

	mu         sync.Mutex
	generation uint64
}

// directorySize bounds the cache: an entry with its signer is about 3 KiB.
const directorySize = 16_384

func newDirectory(r records) (*directory, error) {
	subs, err := lru.New[delivery.SubscriberNum, *prepared](directorySize)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	tenants, err := lru.New[delivery.TenantNum, *delivery.Tenant](directorySize)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	numbers, err := lru.New[string, delivery.TenantNum](directorySize)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	return &directory{records: r, subs: subs, tenants: tenants, numbers: numbers}, nil
}

// Subscriber implements sched's Directory.
func (d *directory) Subscriber(num delivery.SubscriberNum) (*delivery.Subscriber, error) {
	p, err := d.prepared(num)
	if err != nil {
		return nil, err
	}
	return p.sub, nil
}

// Tenant implements sched's Directory.
func (d *directory) Tenant(num delivery.TenantNum) (*delivery.Tenant, error) {
	if t, ok := d.tenants.Get(num); ok {
		return t, nil
	}
	before := d.now()
	t, err := d.records.TenantByNum(num)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.generation == before {
		d.tenants.Add(num, t)
	}
	return t, nil
}

// TenantByID returns the record of the tenant with an id.
func (d *directory) TenantByID(id string) (*delivery.Tenant, error) {
	if num, ok := d.numbers.Get(id); ok {
		if t, err := d.Tenant(num); err == nil && t.ID == id {
			return t, nil
		}
	}
	t, err := d.records.GetTenant(id)
	if err != nil {
		return nil, err
	}
	d.numbers.Add(t.ID, t.Num)
	return t, nil
}

func (d *directory) prepared(num delivery.SubscriberNum) (*prepared, error) {
	if p, ok := d.subs.Get(num); ok {
		return p, nil
	}
	before := d.now()
	sub, err := d.records.SubscriberByNum(num)
	if err != nil {
		return nil, err
	}
	p, err := prepare(sub)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.generation == before {
		d.subs.Add(num, p)
	}
	return p, nil
}

func (d *directory) now() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.generation
}

// forget drops what changed. A deleted tenant takes its subscribers along: they
// are not reported one by one.
func (d *directory) forget(tenant delivery.TenantNum, sub delivery.SubscriberNum, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	if sub != 0 {
		d.subs.Remove(sub)
		return
	}
	d.tenants.Remove(tenant)
	if !deleted {
		return
	}
	for _, p := range d.subs.Values() {
		if p.sub.Tenant == tenant {
			d.subs.Remove(p.sub.Num)
		}
	}
}

// purge drops everything: after the store was opened again, a change that was
// visible and never durable may be gone.
func (d *directory) purge() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	d.subs.Purge()
	d.tenants.Purge()
}

// prepared is a subscriber with everything that sending to it needs, made once
// per version of its record.
type prepared struct {
	sub      *delivery.Subscriber
	endpoint delivery.Endpoint
	signer   *signing.Signer   // nil for an origin, which knows us by its token
	path     string            // origin form
	host     string            // authority for Host and :authority
	extra    []delivery.Header // the subscriber's own, by name
}

// prepare makes the sendable form of a subscriber.
func prepare(sub *delivery.Subscriber) (*prepared, error) {
	u, err := url.Parse(sub.URL)
	if err != nil {
		return nil, fmt.Errorf("subscriber %s: stored url does not parse", sub.ID)
	}
	origin, err := originOf(u)
	if err != nil {
		return nil, fmt.Errorf("subscriber %s: %w", sub.ID, err)
	}
	var signer *signing.Signer
	if !isOrigin(sub.ID) {
		if signer, err = newSigner(sub.Signing); err != nil {
			return nil, fmt.Errorf("subscriber %s: signing: %w", sub.ID, err)
		}
	}
	p := &prepared{
		sub: sub, signer: signer, path: u.RequestURI(), host: u.Host,
		endpoint: delivery.Endpoint{Route: delivery.Route{Origin: origin, Identity: identityOf(sub.TLS)}, TLS: sub.TLS},
	}
	for name, value := range sub.Headers {
		p.extra = append(p.extra, delivery.Header{Name: http.CanonicalHeaderKey(name), Value: value})
	}
	slices.SortFunc(p.extra, func(a, b delivery.Header) int { return strings.Compare(a.Name, b.Name) })
	return p, nil
}

func originOf(u *url.URL) (delivery.Origin, error) {
	port := 443
	if u.Scheme == "http" {
		port = 80
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return delivery.Origin{}, fmt.Errorf("url port %q is not 1 to 65535", p)
		}
		port = int(n)
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return delivery.Origin{Scheme: u.Scheme, Host: host, Port: uint16(port)}, nil //nolint:gosec // parsed as 16 bits
}

// identityOf fingerprints TLS material; lengths keep the fields apart.
func identityOf(m *delivery.TLSMaterial) delivery.Identity {
	if m == nil {
		return delivery.Identity{}
	}
	h := sha256.New()
	for _, part := range [][]byte{m.CAPEM, m.ClientCertPEM, m.ClientKeyPEM} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	var id delivery.Identity
	copy(id[:], h.Sum(nil))
	return id
}
