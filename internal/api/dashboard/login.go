package dashboard

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// loginPerSecond and loginBurst bound what one address may try, nodeFactor
	// times that what all of them may. Tokens are too long to be guessed; this
	// keeps guessing from costing anything, and the log readable.
	loginPerSecond = 0.2
	loginBurst     = 10
	nodeFactor     = 10
	// maxClients are remembered; beyond that all share one bucket.
	maxClients = 1024
	maxToken   = 4096
)

// attempts limits logins.
type attempts struct {
	mu      sync.Mutex
	all     *rate.Limiter
	others  *rate.Limiter
	clients map[string]*rate.Limiter
}

func newAttempts() *attempts {
	return &attempts{
		all:     rate.NewLimiter(loginPerSecond*nodeFactor, loginBurst*nodeFactor),
		others:  rate.NewLimiter(loginPerSecond, loginBurst),
		clients: map[string]*rate.Limiter{},
	}
}

// allow reports whether an address may try once more.
func (a *attempts) allow(client string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.clients[client]
	if l == nil {
		if len(a.clients) >= maxClients {
			for known, l := range a.clients {
				if l.Tokens() >= loginBurst {
					delete(a.clients, known) // it may do what a stranger may
				}
			}
		}
		if len(a.clients) >= maxClients {
			return a.others.Allow() && a.all.Allow()
		}
		l = rate.NewLimiter(loginPerSecond, loginBurst)
		a.clients[client] = l
	}
	return l.Allow() && a.all.Allow()
}

// loginPage is what login.html shows.
type loginPage struct {
	page
	Next  string
	Wrong string
}

func (d *Dashboard) showLogin(w http.ResponseWriter, r *http.Request) {
	if d.current(r) != nil {
		http.Redirect(w, r, Root, http.StatusSeeOther)
		return
	}
	d.loginAgain(w, r, http.StatusOK, "")
}

func (d *Dashboard) loginAgain(w http.ResponseWriter, r *http.Request, status int, wrong string) {
	p := loginPage{page: page{Title: "Sign in", Version: d.node.Version()}, Next: localPath(r.FormValue("next")), Wrong: wrong}
	d.render(w, r, status, "login.html", p)
}

func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		client = r.RemoteAddr
	}
	if !d.attempts.allow(client) {
		w.Header().Set("Retry-After", "10")
		d.loginAgain(w, r, http.StatusTooManyRequests, "Too many tries. Wait ten seconds, then try again.")
		return
	}
	token := strings.TrimSpace(r.PostFormValue("token"))
	if _, ok := d.config.Authenticate(token); !ok || len(token) > maxToken {
		d.logger.Warn("dashboard_login_refused", "client", client)
		d.loginAgain(w, r, http.StatusUnauthorized, "This is not a token of this node, or not one that may look. Check that it was copied whole.")
		return
	}
	if old := d.sessions.of(r); old != nil {
		d.sessions.end(old.id)
	}
	setCookie(w, r, d.sessions.start(token).id)
	d.logger.Info("dashboard_login", "client", client)
	http.Redirect(w, r, localPath(r.PostFormValue("next")), http.StatusSeeOther)
}

func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	if s := d.sessions.of(r); s != nil {
		d.sessions.end(s.id)
	}
	setCookie(w, r, "")
	http.Redirect(w, r, Root+"login", http.StatusSeeOther)
}

// localPath returns where to go after the login: a page of the dashboard,
// whatever was asked for.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, Root) ||
		strings.HasPrefix(u.Path, Root+"login") || strings.ContainsAny(next, "\\\r\n\t") {
		return Root
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}
