package api

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dispatcher-engine/dispatcher/internal/api/dashboard"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
)

// Config is what a [Server] needs besides its node.
type Config struct {
	// Tokens are the tokens of the configuration, which may do everything; at least
	// one. Those that are made over the API are the node's.
	Tokens []string
	// MaxPayload bounds an event's payload in bytes; 0 = 25 MiB.
	MaxPayload int64
	// MaxBatch bounds a batch publish in bytes; 0 = 64 MiB.
	MaxBatch int64
	// Metrics serves GET /metrics behind the token; nil = 404.
	Metrics http.Handler
	// ReadOnlyDashboard refuses every change by the dashboard, whatever a token
	// may do; the API is not concerned.
	ReadOnlyDashboard bool
	// Activity returns readings of the node's counters for the dashboard; nil =
	// its overview has gauges alone.
	Activity func() []telemetry.Totals
	// Logger gets internal errors; nil = none.
	Logger *slog.Logger
}

const (
	defaultMaxPayload = 25 << 20
	defaultMaxBatch   = 64 << 20
	// maxEnvelope is what an event may need besides its payload.
	maxEnvelope = 64 << 10
	// maxConfigBody bounds tenants, subscribers and filters.
	maxConfigBody = 256 << 10
)

// Server is the HTTP API as an http.Handler.
type Server struct {
	node    Node
	config  Config
	tokens  atomic.Pointer[configTokens]
	logger  *slog.Logger
	api     huma.API
	handler http.Handler
	drained atomic.Bool
	bodies  *bodies

	dashboard *dashboard.Dashboard
}

// New makes the API of a node.
func New(node Node, config Config) (*Server, error) {
	s := &Server{node: node, config: config, logger: config.Logger, bodies: newBodies()}
	if err := s.SetTokens(config.Tokens); err != nil {
		return nil, err
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if s.config.MaxPayload == 0 {
		s.config.MaxPayload = defaultMaxPayload
	}
	if s.config.MaxBatch == 0 {
		s.config.MaxBatch = defaultMaxBatch
	}
	useProblems()
	var err error
	s.dashboard, err = dashboard.New(node, dashboard.Config{
		Authenticate: s.dashboardAccess, ReadOnly: config.ReadOnlyDashboard, Activity: config.Activity, Logger: s.logger,
	})
	if err != nil {
		return nil, err
	}
	private := &guarded{mux: http.NewServeMux()}
	s.handler = s.routes(private)
	return s, private.err()
}

// SetDashboardReadOnly changes whether the dashboard may change anything.
func (s *Server) SetDashboardReadOnly(readOnly bool) { s.dashboard.SetReadOnly(readOnly) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if tenant, ok := publishedFor(r); ok {
		s.publishDirectly(w, r, tenant)
		return
	}
	s.handler.ServeHTTP(w, r)
}

// Drain makes GET /readyz answer 503 from now on, for a node that is about to
// stop. Everything else goes on: balancers notice only at their next look.
func (s *Server) Drain() { s.drained.Store(true) }

func (s *Server) routes(private *guarded) http.Handler {
	s.api = humago.New(private, s.document())
	s.registerTokens()
	s.registerTenants()
	s.registerSubscribers()
	s.registerSources()
	s.registerEvents(private)
	s.registerDeliveries()
	s.registerReplays()
	s.registerProtocols()
	s.registerStore()
	private.HandleFunc("GET /v1/openapi.json", s.openAPI)
	private.HandleFunc("GET /debug/pprof/{name}", s.profile)
	private.HandleFunc("GET /v1/deliveries/{id}/payload", s.payload)
	if s.config.Metrics != nil {
		private.HandleFunc("GET /metrics", s.config.Metrics.ServeHTTP)
	}
	private.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, r, newProblem(http.StatusNotFound, "no such path; see GET /v1/openapi.json"))
	})
	s.describe()
	s.finish()

	public := http.NewServeMux()
	public.HandleFunc("GET /healthz", s.healthz)
	public.HandleFunc("GET /readyz", s.readyz)
	public.Handle(dashboard.Root, s.dashboard)
	public.HandleFunc("GET /{$}", s.root)
	public.Handle("/", s.authenticate(private))
	return public
}

// root sends browsers to the dashboard, and everybody else to the document.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, dashboard.Root, http.StatusSeeOther)
		return
	}
	writeProblem(w, r, newProblem(http.StatusNotFound, "no such path; see GET /v1/openapi.json, or /ui/ in a browser"))
}

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", openAPIType)
	_ = json.NewEncoder(w).Encode(s.api.OpenAPI())
}

var errDrained = errors.New("the node is stopping")

// healthz says that the process runs; it never depends on the store.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": s.node.Version()})
}

// readyz says whether publishes are accepted, and why not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	err := s.node.Ready()
	if s.drained.Load() {
		err = errDrained
	}
	if err != nil {
		p := newProblem(http.StatusServiceUnavailable, err.Error())
		p.retryAfter = defaultRetryAfter
		writeProblem(w, r, p)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

const openAPIType = "application/vnd.oai.openapi+json"
