package dashboard

import (
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Access is what a token may do.
type Access struct {
	// Write allows more than looking.
	Write bool
	// Name says whose token it is, for the page's corner; may be empty.
	Name string
}

const (
	cookieName = "dispatcher_session"
	// sessionLife is how long a session lasts, however it is used.
	sessionLife = 12 * time.Hour
	// maxSessions are open at once; one more ends the oldest.
	maxSessions = 256
)

// session is one browser that showed a token. The token is kept in memory alone,
// so that one that is revoked ends its sessions.
type session struct {
	id      string
	token   string
	expires time.Time

	mu    sync.Mutex
	flash *flash
}

// flash is a message for the next page.
type flash struct {
	Kind string // ok or bad
	Text string
}

// say leaves a message for the session's next page.
func (s *session) say(kind, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flash = &flash{Kind: kind, Text: text}
}

// told takes the message.
func (s *session) told() *flash {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flash
	s.flash = nil
	return f
}

// sessions are the open sessions.
//
// Invariant: order holds the ids of open, oldest first, and at most maxSessions.
type sessions struct {
	mu    sync.Mutex
	open  map[string]*session
	order []string
}

func newSessions() *sessions { return &sessions{open: map[string]*session{}} }

// start opens a session under a fresh random id.
func (s *sessions) start(token string) *session {
	n := &session{id: rand.Text() + rand.Text(), token: token, expires: time.Now().Add(sessionLife)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(time.Now())
	s.open[n.id] = n
	s.order = append(s.order, n.id)
	return n
}

// dropLocked removes what has expired, and the oldest where there are too many.
// All sessions last equally long, so the oldest expire first.
func (s *sessions) dropLocked(now time.Time) {
	for len(s.order) > 0 {
		oldest, ok := s.open[s.order[0]]
		if ok && now.Before(oldest.expires) && len(s.order) < maxSessions {
			return
		}
		delete(s.open, s.order[0])
		s.order = s.order[1:]
	}
}

// of returns the request's session, nil if it has none that is open.
func (s *sessions) of(r *http.Request) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.open[cookie.Value]
	if found == nil || !time.Now().Before(found.expires) {
		return nil
	}
	return found
}

// end closes a session.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
	for i, known := range s.order {
		if known == id {
			s.order = append(s.order[:i:i], s.order[i+1:]...)
			return
		}
	}
}

// secure reports whether the browser came over TLS: to this node, or to the proxy
// before it. A header that lies only makes the browser withhold its own cookie.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// setCookie gives the browser its session; "" takes it away.
func setCookie(w http.ResponseWriter, r *http.Request, id string) {
	age := int(sessionLife / time.Second)
	if id == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: id, Path: Root, MaxAge: age, HttpOnly: true, Secure: secure(r), SameSite: http.SameSiteStrictMode,
	})
}
