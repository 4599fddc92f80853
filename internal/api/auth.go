package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/api/dashboard"
)

// configTokens are hashes of the tokens of the configuration, each of which may do
// everything. They are not in the store: they let an operator in that has no other
// token yet, or none any more.
type configTokens [][sha256.Size]byte

func hashTokens(plain []string) configTokens {
	out := make(configTokens, 0, len(plain))
	for _, t := range plain {
		if t != "" {
			out = append(out, sha256.Sum256([]byte(t)))
		}
	}
	return out
}

// accept compares with every token, whichever matches, in constant time.
func (t configTokens) accept(token string) bool {
	sum := sha256.Sum256([]byte(token))
	ok := 0
	for i := range t {
		ok |= subtle.ConstantTimeCompare(sum[:], t[i][:])
	}
	return ok == 1
}

// configCaller is who uses a token of the configuration.
const configCaller = "config"

// bearer returns the token of an Authorization header (RFC 6750 §2.1).
func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}

// SetTokens replaces the tokens of the configuration while the API serves; at
// least one is needed.
func (s *Server) SetTokens(plain []string) error {
	hashed := hashTokens(plain)
	if len(hashed) == 0 {
		return errors.New("api: no token configured: nobody could use it")
	}
	s.tokens.Store(&hashed)
	return nil
}

// identify returns who a token belongs to.
func (s *Server) identify(token string) (caller, error) {
	if s.tokens.Load().accept(token) {
		return caller{ID: configCaller, Scope: engine.TokenAdmin}, nil
	}
	t, err := s.node.AuthenticateToken(token)
	if err != nil {
		return caller{}, err
	}
	return caller{ID: t.ID, Scope: t.Scope, Tenant: t.Tenant, token: &t}, nil
}

// authenticate lets a request through only with a token, on loopback too.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, ok := s.admit(w, r); ok {
			assumeJSON(r)
			next.ServeHTTP(w, r.WithContext(withCaller(r.Context(), who)))
		}
	})
}

// admit returns who makes a request, or answers that there is no telling.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (who caller, ok bool) {
	token, ok := bearer(r)
	detail := "send the API token as Authorization: Bearer TOKEN"
	if ok {
		who, err := s.identify(token)
		if err == nil {
			return who, true
		}
		detail = engine.ErrToken.Error()
		if errors.Is(err, engine.ErrTokenExpired) {
			detail = engine.ErrTokenExpired.Error() + "; an admin can make another"
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="dispatcher"`)
	writeProblem(w, r, newProblem(http.StatusUnauthorized, detail))
	return caller{}, false
}

// dashboardAccess says what a token may do in the dashboard, which shows the whole
// node: a token that is bound to a tenant, or is for publishing, may not look.
func (s *Server) dashboardAccess(token string) (dashboard.Access, bool) {
	who, err := s.identify(token)
	if token == "" || err != nil || who.Tenant != "" || who.Scope != engine.TokenAdmin && who.Scope != engine.TokenRead {
		return dashboard.Access{}, false
	}
	return dashboard.Access{Write: who.Scope == engine.TokenAdmin, Name: who.ID}, true
}
