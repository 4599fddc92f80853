package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// Tokens is the part of [Node] about who may use it.
type Tokens interface {
	// AuthenticateToken returns [engine.ErrToken] or [engine.ErrTokenExpired] for a
	// text that opens nothing.
	AuthenticateToken(text string) (engine.Token, error)
	// CreateToken and RotateToken return the token's text this once.
	CreateToken(ctx context.Context, in engine.TokenInput) (t engine.Token, text string, err error)
	RotateToken(ctx context.Context, id string, keep time.Duration) (t engine.Token, text string, err error)
	GetToken(ctx context.Context, id string) (engine.Token, error)
	ListTokens(ctx context.Context, page engine.Page) ([]engine.Token, string, error)
	RevokeToken(ctx context.Context, id string) error
}

// TokenPath names a token in a path.
type TokenPath struct {
	ID string `path:"id" doc:"token id" maxLength:"64" pattern:"^[a-z0-9]+$" patternDescription:"small letters and digits alone"`
}

// Token is an API token on the wire; its text is in the answer alone that made it.
type Token struct {
	ID           string  `json:"id" doc:"the middle part of the token's text; config for the token of the configuration"`
	Name         string  `json:"name" doc:"who uses it"`
	Scope        string  `json:"scope" enum:"admin,publish,read" doc:"what it may do"`
	Tenant       string  `json:"tenant,omitempty" doc:"the one tenant it is for; absent = the whole node"`
	Token        string  `json:"token,omitempty" doc:"the token itself: shown once, when it is made or rotated"`
	CreatedAt    *string `json:"created_at,omitempty" format:"date-time" doc:"absent for the token of the configuration"`
	RotatedAt    *string `json:"rotated_at,omitempty" format:"date-time" doc:"absent = never"`
	ExpiresAt    *string `json:"expires_at,omitempty" format:"date-time" doc:"absent = never"`
	OverlapUntil *string `json:"overlap_until,omitempty" format:"date-time" doc:"until when the one before the last rotation is accepted"`
	LastUsedAt   *string `json:"last_used_at,omitempty" format:"date-time" doc:"the hour it was last used in"`
}

type tokenBody struct {
	Name      string   `json:"name" minLength:"1" maxLength:"128" doc:"who uses it, such as checkout-service"`
	Scope     string   `json:"scope" enum:"admin,publish,read" doc:"admin: everything; publish: events of one tenant; read: everything but payloads and tokens"`
	Tenant    string   `json:"tenant,omitempty" doc:"the one tenant it is for; required with publish, optional with read"`
	ExpiresIn Duration `json:"expires_in,omitempty" doc:"default: it does not expire"`
}

type rotateTokenBody struct {
	Keep *Duration `json:"keep,omitempty" doc:"how long the present one stays valid; 0 = it ends now; default 24h"`
}

func tokenOut(t engine.Token) Token {
	return Token{
		ID: t.ID, Name: t.Name, Scope: string(t.Scope), Tenant: t.Tenant, CreatedAt: rfc3339(t.CreatedAt), RotatedAt: rfc3339(t.RotatedAt),
		ExpiresAt: rfc3339(t.ExpiresAt), OverlapUntil: rfc3339(t.OverlapUntil), LastUsedAt: rfc3339(t.LastUsedAt),
	}
}

const tokensPath = "/v1/tokens"

func (s *Server) registerTokens() {
	self := operation(http.MethodGet, tokensPath+"/self", "get-own-token", "Show the token that is used, and what it may do", http.StatusOK)
	huma.Register(s.api, self, func(ctx context.Context, _ *struct{}) (*bodyOf[Token], error) {
		who := callerOf(ctx)
		if who.token == nil {
			return ok(Token{ID: who.ID, Name: "the token of the configuration", Scope: string(who.Scope)}), nil
		}
		return ok(tokenOut(*who.token)), nil
	})
	list := operation(http.MethodGet, tokensPath, "list-tokens", "List API tokens, the oldest first", http.StatusOK)
	huma.Register(s.api, list, func(ctx context.Context, in *PageQuery) (*pageOf[Token], error) {
		rows, next, err := s.node.ListTokens(ctx, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return newPage(mapped(rows, tokenOut), next), nil
	})
	get := operation(http.MethodGet, tokensPath+"/{id}", "get-token", "Show an API token, not its text", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, get, func(ctx context.Context, in *TokenPath) (*bodyOf[Token], error) {
		t, err := s.node.GetToken(ctx, in.ID)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(tokenOut(t)), nil
	})
	s.registerTokenChanges()
}

func (s *Server) registerTokenChanges() {
	create := operation(http.MethodPost, tokensPath, "create-token", "Make an API token; the answer alone shows it", http.StatusCreated, http.StatusConflict)
	huma.Register(s.api, create, func(ctx context.Context, in *struct{ Body tokenBody }) (*bodyOf[Token], error) {
		t, text, err := s.node.CreateToken(ctx, engine.TokenInput{
			Name: in.Body.Name, Scope: engine.TokenScope(in.Body.Scope), Tenant: in.Body.Tenant, ExpiresIn: durationOf(in.Body.ExpiresIn),
		})
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		s.audit(ctx, "api_token_created", "token", t.ID, "scope", t.Scope, "tenant", t.Tenant)
		out := tokenOut(t)
		out.Token = text
		return &bodyOf[Token]{Status: http.StatusCreated, Body: out}, nil
	})
	rotate := operation(http.MethodPost, tokensPath+"/{id}/rotate", "rotate-token", "Give an API token a new text; the answer alone shows it", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, rotate, func(ctx context.Context, in *struct {
		TokenPath
		Body *rotateTokenBody
	},
	) (*bodyOf[Token], error) {
		keep := time.Duration(0)
		if given := orZero(in.Body).Keep; given != nil {
			if keep = time.Duration(*given); keep <= 0 {
				keep = -1 // "0" is "not at all"; not given is the usual
			}
		}
		t, text, err := s.node.RotateToken(ctx, in.ID, keep)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		s.audit(ctx, "api_token_rotated", "token", t.ID, "overlap_until", t.OverlapUntil)
		out := tokenOut(t)
		out.Token = text
		return ok(out), nil
	})
	revoke := operation(http.MethodDelete, tokensPath+"/{id}", "revoke-token", "End an API token at once", http.StatusNoContent, http.StatusNotFound)
	huma.Register(s.api, revoke, func(ctx context.Context, in *TokenPath) (*struct{}, error) {
		if err := s.node.RevokeToken(ctx, in.ID); err != nil {
			return nil, problemFor(err, s.logger)
		}
		s.audit(ctx, "api_token_revoked", "token", in.ID)
		return nil, nil //nolint:nilnil // 204 has no body
	})
}

// audit logs what somebody did that others will want to know of, and with which
// token.
func (s *Server) audit(ctx context.Context, what string, args ...any) {
	s.logger.InfoContext(ctx, "audit", append([]any{"what", what, "by", callerOf(ctx).ID}, args...)...)
}
