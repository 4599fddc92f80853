package storage

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// recordVersion begins every configuration record. The fields are JSON: there
// are few records, they are read rarely, and a store that can be read by eye is
// worth more here than bytes. Numbers of enumerations are part of the format.
const recordVersion = 1

type tenantRecord struct {
	ID        string    `json:"id"`
	Version   uint64    `json:"version"`
	Name      string    `json:"name,omitzero"`
	Weight    int       `json:"weight,omitzero"`
	PerSecond float64   `json:"per_second,omitzero"`
	Burst     int       `json:"burst,omitzero"`
	MaxShare  int       `json:"max_share,omitzero"`
	Reserved  int       `json:"reserved,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func encodeTenant(t *delivery.Tenant) ([]byte, error) {
	fields, err := json.Marshal(tenantRecord{
		ID: t.ID, Version: t.Version, Name: t.Name, Weight: t.Weight,
		PerSecond: t.RateLimit.PerSecond, Burst: t.RateLimit.Burst,
		MaxShare: t.MaxShare, Reserved: t.Reserved,
		CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(),
	})
	if err != nil { // an infinite rate, for one
		return nil, fmt.Errorf("tenant %s: %w: %w", t.ID, err, ErrBadRecord)
	}
	return append([]byte{recordVersion}, fields...), nil
}

func decodeTenant(num delivery.TenantNum, b []byte) (*delivery.Tenant, error) {
	var rec tenantRecord
	if err := decodeFields(b, &rec); err != nil {
		return nil, fmt.Errorf("tenant %d: %w", num, err)
	}
	return &delivery.Tenant{
		Num: num, ID: rec.ID, Version: rec.Version, Name: rec.Name, Weight: rec.Weight,
		RateLimit: delivery.RateLimit{PerSecond: rec.PerSecond, Burst: rec.Burst},
		MaxShare:  rec.MaxShare, Reserved: rec.Reserved,
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt,
	}, nil
}

func decodeFields(b []byte, into any) error {
	if len(b) == 0 || b[0] != recordVersion {
		return fmt.Errorf("not a record of version %d: %w", recordVersion, ErrDamaged)
	}
	if err := json.Unmarshal(b[1:], into); err != nil {
		return fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	return nil
}

// A subscriber's record is
//
//	version(1) · length of the open part(uvarint) · open part · sealed part
//
// The open part is enough to list and to delete a subscriber whose key is lost.
// The sealed part holds whatever could let somebody in: signing secrets, the
// client key, every header value (which of them is an API key only its owner
// knows), and the URL, since many providers put a token into its path.
type subscriberRecord struct {
	ID           string          `json:"id"`
	Tenant       uint32          `json:"tenant"`
	Version      uint64          `json:"version"`
	Origin       string          `json:"origin"` // of the URL, for when the rest cannot be opened
	Topics       []string        `json:"topics,omitempty"`
	Signing      []signingRecord `json:"signing,omitempty"`
	HasTLS       bool            `json:"has_tls,omitzero"`
	CAPEM        []byte          `json:"ca_pem,omitempty"`
	ClientCert   []byte          `json:"client_cert_pem,omitempty"`
	Ordering     uint8           `json:"ordering,omitzero"`
	Concurrency  int             `json:"concurrency,omitzero"`
	Reserved     int             `json:"reserved,omitzero"`
	PerSecond    float64         `json:"per_second,omitzero"`
	Burst        int             `json:"burst,omitzero"`
	Retry        retryRecord     `json:"retry,omitzero"`
	GiveUpAfter  int             `json:"give_up_after,omitzero"`
	DisableAfter time.Duration   `json:"disable_after,omitzero"`
	DisableFails int             `json:"disable_after_failures,omitzero"`
	Timeout      time.Duration   `json:"timeout,omitzero"`
	Protocol     uint8           `json:"protocol,omitzero"`
	Priority     uint8           `json:"priority"`
	Status       uint8           `json:"status,omitzero"`
	StatusReason uint8           `json:"status_reason,omitzero"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
}

type signingRecord struct {
	Scheme  string         `json:"scheme"`
	Header  string         `json:"header,omitzero"`
	Secrets []secretRecord `json:"secrets,omitempty"`
}

// secretRecord is what may be known of a secret; its value is in the sealed part
// at the same place.
type secretRecord struct {
	CreatedAt time.Time `json:"created_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

type retryRecord struct {
	Schedule []time.Duration `json:"schedule,omitempty"`
	Base     time.Duration   `json:"base,omitzero"`
	Factor   float64         `json:"factor,omitzero"`
	Max      time.Duration   `json:"max,omitzero"`
	Attempts int             `json:"attempts,omitzero"`
	MaxAge   time.Duration   `json:"max_age,omitzero"`
}

// sealedRecord is bytes throughout: a JSON string would quietly replace what is
// not UTF-8, and a secret with one wrong byte signs nothing.
type sealedRecord struct {
	URL       []byte            `json:"url"`
	Secrets   [][][]byte        `json:"secrets,omitempty"` // by entry of Signing, then newest first
	ClientKey []byte            `json:"client_key,omitempty"`
	Headers   map[string][]byte `json:"headers,omitempty"`
}

// encodeSubscriber returns the value to store under key. With a nil sealer the
// record has no sealed part: that is how a deleted subscriber is remembered.
func encodeSubscriber(s *delivery.Subscriber, seal *sealer, key []byte) ([]byte, error) {
	open, err := json.Marshal(openPart(s))
	if err != nil {
		return nil, fmt.Errorf("subscriber %s: %w: %w", s.ID, err, ErrBadRecord)
	}
	out := append(make([]byte, 0, len(open)+512), recordVersion)
	out = binary.AppendUvarint(out, uint64(len(open)))
	out = append(out, open...)
	if seal == nil {
		return out, nil
	}
	secret, err := json.Marshal(sealedPart(s))
	if err != nil {
		// The error could quote a secret, so it is not passed on.
		return nil, fmt.Errorf("subscriber %s: its secrets cannot be encoded: %w", s.ID, ErrBadRecord)
	}
	return seal.seal(out, secret, key), nil
}

func openPart(s *delivery.Subscriber) subscriberRecord {
	rec := subscriberRecord{
		ID: s.ID, Tenant: uint32(s.Tenant), Version: s.Version, Origin: originOf(s.URL), Topics: s.Topics,
		Ordering: uint8(s.Ordering), Concurrency: s.Concurrency, Reserved: s.Reserved,
		PerSecond: s.RateLimit.PerSecond, Burst: s.RateLimit.Burst, Retry: retryRecord(s.Retry),
		GiveUpAfter: s.GiveUpAfter, DisableAfter: s.DisableAfter, DisableFails: s.DisableAfterFailures,
		Timeout: s.Timeout, Protocol: uint8(s.Protocol), Priority: uint8(s.Priority),
		Status: uint8(s.Status), StatusReason: uint8(s.StatusReason),
		CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
	}
	for _, scheme := range s.Signing {
		out := signingRecord{Scheme: scheme.Scheme, Header: scheme.Header}
		for _, secret := range scheme.Secrets {
			out.Secrets = append(out.Secrets, secretRecord{secret.CreatedAt.UTC(), secret.ExpiresAt.UTC()})
		}
		rec.Signing = append(rec.Signing, out)
	}
	if s.TLS != nil {
		rec.HasTLS, rec.CAPEM, rec.ClientCert = true, s.TLS.CAPEM, s.TLS.ClientCertPEM
	}
	return rec
}

func sealedPart(s *delivery.Subscriber) sealedRecord {
	rec := sealedRecord{URL: []byte(s.URL)}
	if len(s.Headers) > 0 {
		rec.Headers = make(map[string][]byte, len(s.Headers))
	}
	for name, value := range s.Headers {
		rec.Headers[name] = []byte(value)
	}
	for _, scheme := range s.Signing {
		values := make([][]byte, len(scheme.Secrets))
		for i, secret := range scheme.Secrets {
			values[i] = []byte(secret.Value)
		}
		rec.Secrets = append(rec.Secrets, values)
	}
	if s.TLS != nil {
		rec.ClientKey = s.TLS.ClientKeyPEM
	}
	return rec
}

// originOf returns what of a URL may be shown.
func originOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// decodeSubscriber reads a stored value. If only its sealed part cannot be
// opened, it returns the rest together with the error; the URL is then the
// origin alone.
func decodeSubscriber(num delivery.SubscriberNum, value []byte, seal *sealer, key []byte) (*delivery.Subscriber, error) {
	rec, sealed, err := splitSubscriber(num, value)
	if err != nil {
		return nil, err
	}
	s := rec.subscriber(num)
	if len(sealed) == 0 {
		return s, nil
	}
	plain, err := seal.open(sealed, key)
	if err != nil {
		return s, fmt.Errorf("secrets of subscriber %d: %w", num, err)
	}
	var secret sealedRecord
	if err := json.Unmarshal(plain, &secret); err != nil {
		return s, fmt.Errorf("secrets of subscriber %d: not in their form: %w", num, ErrDamaged)
	}
	if !secret.fits(s) {
		return s, fmt.Errorf("secrets of subscriber %d: not as many as signing schemes: %w", num, ErrDamaged)
	}
	secret.fill(s)
	return s, nil
}

func splitSubscriber(num delivery.SubscriberNum, value []byte) (*subscriberRecord, []byte, error) {
	if len(value) == 0 || value[0] != recordVersion {
		return nil, nil, fmt.Errorf("subscriber %d: not a record of version %d: %w", num, recordVersion, ErrDamaged)
	}
	size, n := binary.Uvarint(value[1:])
	if n <= 0 || size > uint64(len(value)-1-n) {
		return nil, nil, fmt.Errorf("subscriber %d: record is cut short: %w", num, ErrDamaged)
	}
	open, sealed := value[1+n:1+n+int(size)], value[1+n+int(size):] //nolint:gosec // below the value's length
	var rec subscriberRecord
	if err := json.Unmarshal(open, &rec); err != nil {
		return nil, nil, fmt.Errorf("subscriber %d: %w: %w", num, err, ErrDamaged)
	}
	return &rec, sealed, nil
}

func (rec *subscriberRecord) subscriber(num delivery.SubscriberNum) *delivery.Subscriber {
	s := &delivery.Subscriber{
		Num: num, Tenant: delivery.TenantNum(rec.Tenant), ID: rec.ID, Version: rec.Version,
		URL: rec.Origin, Topics: rec.Topics,
		Ordering: delivery.Ordering(rec.Ordering), Concurrency: rec.Concurrency, Reserved: rec.Reserved,
		RateLimit: delivery.RateLimit{PerSecond: rec.PerSecond, Burst: rec.Burst}, Retry: delivery.Retry(rec.Retry),
		GiveUpAfter: rec.GiveUpAfter, DisableAfter: rec.DisableAfter, DisableAfterFailures: rec.DisableFails,
		Timeout: rec.Timeout, Protocol: delivery.ProtocolPolicy(rec.Protocol), Priority: delivery.Priority(rec.Priority),
		Status: delivery.SubscriberStatus(rec.Status), StatusReason: delivery.Reason(rec.StatusReason),
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt,
	}
	for _, in := range rec.Signing {
		scheme := delivery.SigningScheme{Scheme: in.Scheme, Header: in.Header}
		for _, secret := range in.Secrets {
			scheme.Secrets = append(scheme.Secrets, delivery.Secret{CreatedAt: secret.CreatedAt, ExpiresAt: secret.ExpiresAt})
		}
		s.Signing = append(s.Signing, scheme)
	}
	if rec.HasTLS {
		s.TLS = &delivery.TLSMaterial{CAPEM: rec.CAPEM, ClientCertPEM: rec.ClientCert}
	}
	return s
}

// fits reports whether every secret has its place in s.
func (rec *sealedRecord) fits(s *delivery.Subscriber) bool {
	return slices.EqualFunc(rec.Secrets, s.Signing, func(values [][]byte, scheme delivery.SigningScheme) bool {
		return len(values) == len(scheme.Secrets)
	})
}

func (rec *sealedRecord) fill(s *delivery.Subscriber) {
	s.URL = string(rec.URL)
	if len(rec.Headers) > 0 {
		s.Headers = make(map[string]string, len(rec.Headers))
	}
	for name, value := range rec.Headers {
		s.Headers[name] = string(value)
	}
	for i, values := range rec.Secrets {
		for j, value := range values {
			s.Signing[i].Secrets[j].Value = string(value)
		}
	}
	if s.TLS != nil {
		s.TLS.ClientKeyPEM = rec.ClientKey
	}
}

// tombstone returns what is remembered of a deleted subscriber until nothing
// names it any more: who it was. Its secrets and its policy go at once.
func tombstone(s *subscriberRecord, num delivery.SubscriberNum, at time.Time) *delivery.Subscriber {
	return &delivery.Subscriber{
		Num: num, Tenant: delivery.TenantNum(s.Tenant), ID: s.ID, Version: s.Version + 1, URL: s.Origin,
		Status: delivery.SubscriberDeleted, StatusReason: delivery.ReasonSubscriberDeleted,
		CreatedAt: s.CreatedAt, UpdatedAt: at,
	}
}

// copySubscriber returns a copy that shares no memory with s, so that a caller
// who changes one never changes the other.
func copySubscriber(s *delivery.Subscriber) *delivery.Subscriber {
	out := *s
	out.Topics = slices.Clone(s.Topics)
	out.Retry.Schedule = slices.Clone(s.Retry.Schedule)
	out.Headers = maps.Clone(s.Headers)
	out.Signing = slices.Clone(s.Signing)
	for i := range out.Signing {
		out.Signing[i].Secrets = slices.Clone(out.Signing[i].Secrets)
	}
	if s.TLS != nil {
		out.TLS = &delivery.TLSMaterial{
			CAPEM:         slices.Clone(s.TLS.CAPEM),
			ClientCertPEM: slices.Clone(s.TLS.ClientCertPEM),
			ClientKeyPEM:  slices.Clone(s.TLS.ClientKeyPEM),
		}
	}
	return &out
}
