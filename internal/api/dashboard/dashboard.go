package dashboard

import (
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
)

// Root is the path below which the dashboard lives.
const Root = "/ui/"

// maxForm bounds what a form may send.
const maxForm = 64 << 10

// Config is what a [Dashboard] needs besides its node.
type Config struct {
	// Authenticate says what an API token may do, and false if it may not even
	// look. Required. It is asked for every request of a session.
	Authenticate func(token string) (Access, bool)
	// ReadOnly refuses every change, whatever the token may do.
	ReadOnly bool
	// Activity returns readings of the node's counters, oldest first, the last one
	// of this moment; nil = the overview has gauges alone.
	Activity func() []telemetry.Totals
	// Logger gets what was done and by which session's right; nil = none.
	Logger *slog.Logger
}

// Dashboard serves the pages below [Root].
type Dashboard struct {
	node     Node
	config   Config
	logger   *slog.Logger
	readOnly atomic.Bool
	sessions *sessions
	attempts *attempts
	live     liveCache
	pages    map[string]*template.Template
	assets   *assets
	handler  http.Handler
}

// New makes the dashboard of a node.
func New(node Node, config Config) (*Dashboard, error) {
	if config.Authenticate == nil {
		return nil, errors.New("dashboard: nothing tells who may look")
	}
	d := &Dashboard{node: node, config: config, logger: config.Logger, sessions: newSessions(), attempts: newAttempts()}
	d.readOnly.Store(config.ReadOnly)
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if d.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if d.pages, err = d.parsePages(); err != nil {
		return nil, err
	}
	d.handler = d.routes()
	return d, nil
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

func (d *Dashboard) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui/login", d.showLogin)
	mux.HandleFunc("POST /ui/login", d.login)
	mux.HandleFunc("POST /ui/logout", d.logout)
	mux.HandleFunc("GET /ui/assets/{version}/{name}", d.assets.serve)

	look := func(pattern string, h handler) { mux.Handle("GET "+pattern, d.signedIn(h)) }
	look("/ui/{$}", d.overview)
	look("/ui/live", d.liveFragment)
	look("/ui/tenants", d.tenants)
	look("/ui/tenants/{tenant}", d.tenant)
	look("/ui/tenants/{tenant}/subscribers/{subscriber}", d.subscriber)
	look("/ui/deliveries", d.deliveries)
	look("/ui/deliveries/{id}", d.delivery)
	look("/ui/dlq", d.deadLetters)
	look("/ui/dlq/replay", d.confirmReplay)
	look("/ui/dlq/replays/{job}", d.replayJob)
	look("/ui/protocols", d.protocols)
	look("/ui/sources", d.sources)
	look("/ui/", d.nothingHere)

	change := func(pattern string, h handler) { mux.Handle("POST "+pattern, d.signedIn(d.mayWrite(h))) }
	change("/ui/tenants/{tenant}/subscribers/{subscriber}/{action}", d.subscriberAction)
	change("/ui/deliveries/{id}/replay", d.replayDelivery)
	change("/ui/dlq/replay", d.startReplay)
	change("/ui/dlq/replays/{job}/stop", d.stopReplay)
	change("/ui/protocols/{origin}/{action}", d.protocolAction)

	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.refuse(w, r, nil, http.StatusForbidden, "This request came from another site",
			"Forms of the dashboard are taken from its own pages alone. Open the page again and repeat what you did.")
	}))
	return d.headers(protection.Handler(http.MaxBytesHandler(mux, maxForm)))
}

// headers are on every answer. There is nothing inline, so the policy has no
// exception: an injected script or style would not run even if it got in.
func (d *Dashboard) headers(next http.Handler) http.Handler {
	const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		// Not no-referrer: with it, a browser sends "Origin: null" with the
		// dashboard's own forms, and the cross-origin check needs the origin.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// visitor is who asks: a session and what its token may do now.
type visitor struct {
	*session
	Access
}

// handler serves a visitor.
type handler func(w http.ResponseWriter, r *http.Request, v *visitor)

// SetReadOnly changes what sessions may do, those that there are as well.
func (d *Dashboard) SetReadOnly(readOnly bool) { d.readOnly.Store(readOnly) }

// current returns the visitor, nil without a session that a token still backs.
func (d *Dashboard) current(r *http.Request) *visitor {
	s := d.sessions.of(r)
	if s == nil {
		return nil
	}
	access, ok := d.config.Authenticate(s.token)
	if !ok {
		d.sessions.end(s.id) // the token was revoked
		return nil
	}
	access.Write = access.Write && !d.readOnly.Load()
	return &visitor{session: s, Access: access}
}

// signedIn sends everybody else to the login.
func (d *Dashboard) signedIn(next handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := d.current(r)
		if v != nil {
			next(w, r, v)
			return
		}
		target := Root + "login"
		if r.Method == http.MethodGet && r.Header.Get("Hx-Request") == "" {
			target += "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
		}
		if r.Header.Get("Hx-Request") != "" {
			w.Header().Set("Hx-Redirect", target)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, target, http.StatusSeeOther)
	})
}

// mayWrite refuses visitors who may only look.
func (d *Dashboard) mayWrite(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request, v *visitor) {
		if !v.Write {
			d.refuse(w, r, v, http.StatusForbidden, "This session is read-only",
				"The node runs with dashboard.read_only, or the token has the scope read. Nothing was changed.")
			return
		}
		next(w, r, v)
	}
}
