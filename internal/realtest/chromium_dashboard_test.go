//go:build real

package realtest

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// TestRealChromiumDashboard is the dashboard as a person meets it: the demo's
// node, its receivers, strangers' markup wherever they may write, and a browser
// that tells of every console message, broken policy and foreign request.
func TestRealChromiumDashboard(t *testing.T) {
	n := startDemo(t)
	n.furnish()
	b := startBrowser(t, n.url)

	step := func(name string, do func(*browser, *demoNode)) {
		t.Run(name, func(t *testing.T) {
			b.t, n.t = t, t
			do(b, n)
		})
	}
	step("signing in", signIn)
	step("every page in every look", everyPage)
	step("by keyboard alone", keyboardWalk)
	step("the overview moves by itself", overviewMoves)
	step("dead letters are replayed", replayDeadLetters)
	step("an origin is pinned, probed and forgotten", pinOrigin)
	step("a subscriber is paused, rotated and resumed", changeSubscriber)
	step("signing out", signOut)
}

func signOut(b *browser, _ *demoNode) {
	b.open("/ui/")
	b.submit("form[action='/ui/logout'] button", "#token")
	b.open("/ui/deliveries")
	if at := eval[string](b, "location.pathname"); at != "/ui/login" {
		b.t.Errorf("after signing out, a page is at %s", at)
	}
	b.clean("signed out")
}

func signIn(b *browser, n *demoNode) {
	b.as(looks[0])
	for _, l := range looks {
		b.as(l)
		b.open("/ui/deliveries?state=dead")
		b.picture("login-" + l.name)
	}
	b.as(looks[0])
	b.expect("401")
	b.run(typed("#token", "not the token"+kb.Enter), seen("#wrong"))
	b.picture("login-wrong")
	b.run(typed("#token", n.token+kb.Enter), seen(".side nav"))
	b.expect("")
	if at := eval[string](b, "location.pathname+location.search"); at != "/ui/deliveries?state=dead" {
		b.t.Errorf("after signing in, at %s instead of the page that was asked for", at)
	}
	if seen := eval[string](b, "document.cookie"); seen != "" {
		b.t.Errorf("scripts can read the session: %q", seen)
	}
	b.clean("login")
}

func everyPage(b *browser, n *demoNode) {
	pages := []struct{ name, path string }{
		{"overview", "/ui/"},
		{"tenants", "/ui/tenants"},
		{"tenant", "/ui/tenants/strange"},
		{"subscriber", "/ui/tenants/strange/subscribers/billing-events"},
		{"deliveries", "/ui/deliveries?tenant=demo"},
		{"deliveries-empty", "/ui/deliveries?tenant=demo&state=canceled"},
		{"deliveries-hostile", "/ui/deliveries?tenant=strange&topic=" + url.QueryEscape("invoice.*") + "&signature=" + url.QueryEscape(markup)},
		{"delivery", "/ui/deliveries/" + n.idOf("tenant=strange&subscriber=redirects")},
		{"delivery-flaky", "/ui/deliveries/" + n.retried("tenant=demo&subscriber=flaky")},
		{"delivery-h3", "/ui/deliveries/" + n.idOf("tenant=demo&subscriber=h3")},
		{"dlq", "/ui/dlq"},
		{"dlq-empty", "/ui/dlq?tenant=demo"},
		{"protocols", "/ui/protocols"},
		{"sources", "/ui/sources?tenant=strange"},
		{"error", "/ui/deliveries?tenant=" + url.QueryEscape(markup)},
	}
	for _, p := range pages {
		if p.name == "error" {
			b.expect("404")
		}
		for _, l := range looks {
			b.as(l)
			b.open(p.path)
			checkPage(b, p.name, l)
			b.picture(p.name + "-" + l.name)
		}
		b.expect("")
		b.clean(p.name)
	}
}

// checkPage holds what is true of every page.
func checkPage(b *browser, name string, l look) {
	b.t.Helper()
	if over := eval[int64](b, "document.documentElement.scrollWidth"); over > l.width {
		b.t.Errorf("%s in %s is %d wide and the screen %d", name, l.name, over, l.width)
	}
	if n := eval[int](b, "document.querySelectorAll('main script, main img, [onerror], [style], iframe').length"); n != 0 {
		b.t.Errorf("%s: %d elements that no template has", name, n)
	}
	unlabelled := `[...document.querySelectorAll('input:not([type=hidden]), select, button')].filter(e =>
		!(e.labels && e.labels.length) && !e.getAttribute('aria-label') && !e.textContent.trim()).length`
	if n := eval[int](b, unlabelled); n != 0 {
		b.t.Errorf("%s: %d controls without a label", name, n)
	}
	if n := eval[int](b, "document.querySelectorAll('h1').length"); n != 1 {
		b.t.Errorf("%s: %d h1, want one", name, n)
	}
	text := eval[string](b, "document.documentElement.outerHTML")
	for _, secret := range []string{"hush-hush", "payload-", "whsec_"} {
		if strings.Contains(text, secret) {
			b.t.Errorf("%s shows %q", name, secret)
		}
	}
}

// keyboardWalk presses Tab through pages: everything that can be used is reached,
// in the order in which it is read, and shows that it has the focus.
func keyboardWalk(b *browser, _ *demoNode) {
	b.as(looks[0])
	for _, path := range []string{"/ui/", "/ui/deliveries", "/ui/dlq", "/ui/protocols", "/ui/tenants/strange/subscribers/billing-events"} {
		b.open(path)
		usable := eval[int](b, `[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select')]
			.filter(e => !e.disabled && e.checkVisibility()).length`)
		b.run(chromedp.KeyEvent(kb.Tab))
		if first := eval[string](b, "document.activeElement.textContent"); !strings.HasPrefix(first, "Skip") {
			b.t.Errorf("%s: the first stop is %q, not the skip link", path, first)
		}
		stops := 1
		for ; stops < usable*4+20; stops++ { // a date field has several stops
			b.run(chromedp.KeyEvent(kb.Tab))
			if eval[bool](b, "document.activeElement === document.body || document.activeElement.className === 'skip'") {
				break
			}
			visible := eval[bool](b, "(s => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2)(getComputedStyle(document.activeElement))")
			if !visible {
				b.t.Errorf("%s: the focus is not seen on %s", path, eval[string](b, "document.activeElement.outerHTML.slice(0,120)"))
			}
		}
		if stops < usable {
			b.t.Errorf("%s: %d stops of the Tab key for %d controls", path, stops, usable)
		}
	}
	// The skip link skips, and a link of the navigation is followed with Enter.
	b.open("/ui/")
	b.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	if at := eval[string](b, "document.activeElement.id"); at != "main" {
		b.t.Errorf("the skip link leads to %q", at)
	}
	b.open("/ui/")
	for range 5 { // skip link, brand, Overview, Subscribers, Deliveries
		b.run(chromedp.KeyEvent(kb.Tab))
	}
	b.picture("keyboard-focus")
	b.run(chromedp.KeyEvent(kb.Enter), seen("#f-tenant"))
	b.clean("keyboard")
}

func overviewMoves(b *browser, _ *demoNode) {
	b.open("/ui/")
	b.until("document.querySelector('.status time').textContent !== '" +
		eval[string](b, "document.querySelector('.status time').textContent") + "'")
	b.clean("live overview")
}

func replayDeadLetters(b *browser, n *demoNode) {
	n.rejecting.Behave(testnet.Behaviour{})
	before := n.rejecting.Tally().Counts().Accepted
	b.open("/ui/dlq?tenant=strange&subscriber=billing-events")
	b.submit("td.acts a.primary", "#pace")
	b.picture("replay-confirm")
	b.submit("form[action='/ui/dlq/replay'] button", "#progress")
	b.until("document.querySelector('#progress [role=status]').textContent.startsWith('Done')")
	b.picture("replay-done")
	n.await(func() bool { return n.rejecting.Tally().Counts().Accepted-before >= strangeEvents })
	if got := n.rejecting.Tally().Counts().Accepted - before; got != strangeEvents {
		b.t.Errorf("the receiver took %d of the %d dead letters", got, strangeEvents)
	}
	b.open("/ui/dlq?tenant=strange&subscriber=billing-events")
	if left := eval[int](b, "document.querySelectorAll('td.acts').length"); left != 0 {
		b.t.Errorf("%d groups are left after the replay", left)
	}
	b.clean("replay")
}

func pinOrigin(b *browser, _ *demoNode) {
	b.open("/ui/protocols")
	origin := eval[string](b, "document.querySelector('.origins h2').textContent")
	form := "form[action$='" + url.PathEscape(origin) + "/pin']"
	b.run(chromedp.SetValue(chromedp.CSS(form+" select[name=protocol]"), "tcp"))
	b.submit(form+" button", ".flash.ok")
	if text := eval[string](b, "document.querySelector('.origins').textContent"); !strings.Contains(text, "pinned to tcp") {
		b.t.Errorf("the pin does not show: %.300s", text)
	}
	b.picture("protocols-pinned")
	b.submit("form[action$='/probe'] button", "#h-probe")
	b.picture("protocols-probed")
	b.submit("form[action$='"+url.PathEscape(origin)+"/forget'] button", ".flash.ok")
	if text := eval[string](b, "document.querySelector('.flash.ok').textContent"); !strings.Contains(text, "forgotten") {
		b.t.Errorf("forgetting says %q", text)
	}
	b.clean("protocols")
}

func changeSubscriber(b *browser, _ *demoNode) {
	b.open("/ui/tenants/demo/subscribers/tcp")
	b.submit("form[action$='/pause'] button", "form[action$='/resume'] button")
	b.picture("subscriber-paused")
	b.submit("form[action$='/resume'] button", "form[action$='/pause'] button")
	b.submit("form[action$='/rotate'] button", "#secret")
	b.picture("subscriber-secret")
	if secret := eval[string](b, "document.querySelector('#secret').textContent"); !strings.HasPrefix(secret, "whsec_") {
		b.t.Errorf("the new secret is %q", secret)
	}
	b.open("/ui/tenants/demo/subscribers/tcp")
	if eval[int](b, "document.querySelectorAll('#secret').length") != 0 {
		b.t.Error("the secret is shown a second time")
	}
	b.submit("form[action$='/test'] button", "#h-water")
	b.clean("subscriber")
}
