package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// tokens are hashes of the API tokens that are accepted.
type tokens [][sha256.Size]byte

func hashTokens(plain []string) tokens {
	out := make(tokens, 0, len(plain))
	for _, t := range plain {
		if t != "" {
			out = append(out, sha256.Sum256([]byte(t)))
		}
	}
	return out
}

// accept compares with every token, whichever matches, in constant time.
func (t tokens) accept(token string) bool {
	sum := sha256.Sum256([]byte(token))
	ok := 0
	for i := range t {
		ok |= subtle.ConstantTimeCompare(sum[:], t[i][:])
	}
	return ok == 1
}

// bearer returns the token of an Authorization header (RFC 6750 §2.1).
func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}

// authenticate lets a request through only with a token, on loopback too.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := bearer(r)
		if !ok || !s.tokens.accept(token) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="dispatcher"`)
			detail := "send the API token as Authorization: Bearer TOKEN"
			if ok {
				detail = "this API token is not known"
			}
			writeProblem(w, r, newProblem(http.StatusUnauthorized, detail))
			return
		}
		next.ServeHTTP(w, r)
	})
}
