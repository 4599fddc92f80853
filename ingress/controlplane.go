package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// ControlPlaneConfig says where sources are configured, if not in this node.
type ControlPlaneConfig struct {
	// URL is the base: a source is read with GET {URL}/tenants/{tenant}/sources/{source}.
	// 200 with the JSON of [ParseSource], or 404. Required. http is for loopback
	// only, since secrets travel.
	URL string
	// Token is sent as "Authorization: Bearer …". Required.
	Token signing.Secret
	// Client does the requests, for a CA or proxy of one's own. It must not follow
	// redirects with the token. Default: a client with the system's roots.
	Client *http.Client
}

// ControlPlane reads sources over HTTP. It keeps nothing: the cache in front of
// it decides how often it is asked.
type ControlPlane struct {
	base   *url.URL
	token  atomic.Pointer[signing.Secret]
	client *http.Client
}

// NewControlPlane returns a reader, or every fault of cfg.
func NewControlPlane(cfg ControlPlaneConfig) (*ControlPlane, error) {
	base, err := cfg.validate()
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	c := &ControlPlane{base: base, client: cfg.Client}
	c.token.Store(&cfg.Token)
	if c.client == nil {
		c.client = &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
				TLSHandshakeTimeout: 3 * time.Second,
				ForceAttemptHTTP2:   true,
				MaxConnsPerHost:     maxReads,
				MaxIdleConnsPerHost: 8,
				IdleConnTimeout:     90 * time.Second,
			},
			// A redirect would take the token along, or secrets from elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return c, nil
}

func (cfg *ControlPlaneConfig) validate() (*url.URL, error) {
	var errs []error
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		errs = append(errs, errors.New("url: must be an absolute http or https URL (value not shown)"))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		errs = append(errs, errors.New("url: must end after the path; credentials belong into token (value not shown)"))
	case u.Scheme == "http" && !loopback(u.Hostname()):
		errs = append(errs, fmt.Errorf("url: %s: secrets would travel in plain text; use https", u.Host))
	}
	if token := cfg.Token.Reveal(); token == "" || signing.ValidateHeader("x-token", token) != nil {
		errs = append(errs, errors.New("token: is required, in visible ASCII characters (value not shown)"))
	}
	return u, errors.Join(errs...)
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// maxSourceJSON bounds what is read of an answer.
const maxSourceJSON = 256 << 10

// Source implements [Sources].
func (c *ControlPlane) Source(ctx context.Context, tenant, source string) (*Source, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.JoinPath("tenants", tenant, "sources", source).String(), nil)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", hideURL(err))
	}
	req.Header.Set("Authorization", "Bearer "+c.token.Load().Reveal())
	req.Header.Set("Accept", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", hideURL(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSourceJSON+1))
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, ErrUnknownSource
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("control plane: answered %d", resp.StatusCode)
	case err != nil:
		return nil, fmt.Errorf("control plane: read the answer: %w", err)
	case len(body) > maxSourceJSON:
		return nil, fmt.Errorf("control plane: answer has more than %d bytes", maxSourceJSON)
	}
	s, err := ParseSource(body)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return s, nil
}

// hideURL takes the URL, which net/http puts in front, off an error.
func hideURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// Close drops idle connections.
func (c *ControlPlane) Close() { c.client.CloseIdleConnections() }
