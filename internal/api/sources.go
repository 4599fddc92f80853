package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// SourcePath names a source in a path.
type SourcePath struct {
	TenantPath
	Source string `path:"source" doc:"source id" maxLength:"128" pattern:"^[A-Za-z0-9_-]+$" patternDescription:"letters, digits, _ and - alone"`
}

// SourceSettings are what a source can be told: one struct for both directions,
// of which secrets travel in one only.
type SourceSettings struct {
	Scheme          string            `json:"scheme" doc:"how the provider signs" enum:"standard,standard-ed25519,stripe,github,shopify,slack,discord,telnyx,twilio,hmac-hex,hmac-base64"`
	Secrets         []string          `json:"secrets,omitempty" doc:"all that are valid, two during a rotation; write-only, shown as ***; left out: those that are stored"`
	Destination     SourceDestination `json:"destination" doc:"where its events go"`
	MaxBody         int64             `json:"max_body,omitempty" minimum:"0" doc:"bytes, after expansion; default 1 MiB"`
	ContentTypes    []string          `json:"content_types,omitempty" doc:"media types that are accepted, such as application/json or text/*; default all"`
	Tolerance       string            `json:"tolerance,omitempty" pattern:"^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$" patternDescription:"a duration such as 5m" doc:"how far a signed time may be off, such as 5m, which is the default"`
	SignatureHeader string            `json:"signature_header,omitempty" doc:"changes the scheme where it allows that"`
	TimestampHeader string            `json:"timestamp_header,omitempty" doc:"changes the scheme where it allows that"`
	SignaturePrefix string            `json:"signature_prefix,omitempty" doc:"text before the signature, such as sha256="`
	SignedContent   string            `json:"signed_content,omitempty" doc:"template of what a generic scheme signs, such as {timestamp}.{body}"`
	SecretEncoding  string            `json:"secret_encoding,omitempty" doc:"how a generic scheme reads its secrets"`
	DedupeHeader    string            `json:"dedupe_header,omitempty" doc:"header with the provider's id; default the scheme's way"`
	DedupeBody      bool              `json:"dedupe_body,omitempty" doc:"also recognise the same body under another id, where the signature does not cover the id"`
	PublicURL       string            `json:"public_url,omitempty" doc:"the URL that was given to the provider, where it is signed (twilio)"`
	ForwardHeaders  []string          `json:"forward_headers,omitempty" doc:"headers of the request that go on with the event, at most 32"`
	AllowIPs        []string          `json:"allow_ips,omitempty" doc:"addresses and prefixes that may send; default all"`
	Decompress      bool              `json:"decompress,omitempty" doc:"accept gzip and zstd"`
	RateLimit       *RateLimit        `json:"rate_limit,omitempty" doc:"events that are processed; default all"`
	RejectOverQuota bool              `json:"reject_over_quota,omitempty" doc:"answer 429 above the limit instead of processing later"`
}

// SourceDestination is where a source's events go.
type SourceDestination struct {
	Type  string     `json:"type" enum:"fanout,origin" doc:"fanout: to the tenant's subscribers, as {source}.{type}; origin: in batches to one URL"`
	URL   string     `json:"url,omitempty" doc:"of the origin"`
	Token string     `json:"token,omitempty" doc:"sent to the origin as Authorization: Bearer; write-only, shown as ***"`
	TLS   *SourceTLS `json:"tls,omitempty" doc:"for an origin with a CA of its own, or one that wants a client certificate; default the system's roots"`
}

// SourceTLS is how an origin and the node know each other.
type SourceTLS struct {
	CAPEM         string `json:"ca_pem,omitempty" doc:"PEM: the certificates that the origin's has to come from"`
	ClientCertPEM string `json:"client_cert_pem,omitempty" doc:"PEM: what the node shows"`
	ClientKeyPEM  string `json:"client_key_pem,omitempty" doc:"PEM: its key; write-only, shown as ***; left out with the same certificate: the one that is stored"`
}

// SourceView is a source on the wire.
type SourceView struct {
	ID         string `json:"id" doc:"chosen by you"`
	Path       string `json:"path" doc:"where the provider posts to, at the ingress's address"`
	Subscriber string `json:"subscriber,omitempty" doc:"the subscriber that its origin is: health, dead letters and replays are there"`
	SourceSettings
	UpdatedAt *string `json:"updated_at" format:"date-time" doc:"the last change"`
}

// sourceOut encodes the settings, which masks what is secret, and reads them
// into the documented form.
func sourceOut(tenant string, s *engine.Source) (SourceView, error) {
	out := SourceView{
		ID: s.ID, Path: "/webhook/" + tenant + "/" + s.ID, Subscriber: s.Subscriber, UpdatedAt: rfc3339(s.UpdatedAt.Truncate(time.Second)),
	}
	raw, err := json.Marshal(s.Config)
	if err == nil {
		err = json.Unmarshal(raw, &out.SourceSettings)
	}
	if err != nil {
		return out, fmt.Errorf("show source %q: %w", s.ID, err)
	}
	return out, nil
}

const sourcePath = "/v1/tenants/{tenant}/sources/{source}"

func (s *Server) registerSources() {
	put := operation(http.MethodPut, sourcePath, "put-source", "Create an ingress source or replace its settings", http.StatusOK, http.StatusCreated, http.StatusNotFound)
	huma.Register(s.api, put, func(ctx context.Context, in *struct {
		SourcePath
		Body    SourceSettings
		RawBody []byte
	},
	) (*bodyOf[SourceView], error) {
		source, created, err := s.node.PutSource(ctx, in.Tenant, in.Source, in.RawBody)
		out, err := s.source(in.Tenant, source, err)
		if err == nil && created {
			out.Status = http.StatusCreated
		}
		return out, err
	})

	get := operation(http.MethodGet, sourcePath, "get-source", "Show an ingress source; secrets are masked", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, get, func(ctx context.Context, in *SourcePath) (*bodyOf[SourceView], error) {
		source, err := s.node.GetSource(ctx, in.Tenant, in.Source)
		return s.source(in.Tenant, source, err)
	})

	list := operation(http.MethodGet, "/v1/tenants/{tenant}/sources", "list-sources", "List a tenant's ingress sources", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, list, func(ctx context.Context, in *struct {
		TenantPath
		PageQuery
	},
	) (*pageOf[SourceView], error) {
		rows, next, err := s.node.ListSources(ctx, in.Tenant, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		views := make([]SourceView, len(rows))
		for i, row := range rows {
			if views[i], err = sourceOut(in.Tenant, row); err != nil {
				return nil, problemFor(err, s.logger)
			}
		}
		return newPage(views, next), nil
	})

	remove := operation(http.MethodDelete, sourcePath, "delete-source", "Delete an ingress source; what is pending for its origin is canceled", http.StatusNoContent, http.StatusNotFound)
	huma.Register(s.api, remove, func(ctx context.Context, in *SourcePath) (*struct{}, error) {
		if err := s.node.DeleteSource(ctx, in.Tenant, in.Source); err != nil {
			return nil, problemFor(err, s.logger)
		}
		return nil, nil //nolint:nilnil // 204 has no body
	})
}

func (s *Server) source(tenant string, source *engine.Source, err error) (*bodyOf[SourceView], error) {
	if err != nil {
		return nil, problemFor(err, s.logger)
	}
	view, err := sourceOut(tenant, source)
	if err != nil {
		return nil, problemFor(err, s.logger)
	}
	return ok(view), nil
}
