//go:build real

package realtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// look is how a page is looked at.
type look struct {
	name          string
	scheme        string
	width, height int64
}

var looks = []look{
	{"light", "light", 1280, 900},
	{"dark", "dark", 1280, 900},
	{"phone", "light", 390, 844},
	{"phone-dark", "dark", 390, 844},
}

// browser is a Chromium that remembers what must not happen: a word on the
// console, a broken policy, a request to anybody but the node.
type browser struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp keeps the browser in it
	base string

	mu       sync.Mutex
	faults   []string
	expected string // part of a console message that a step is about to cause
}

func startBrowser(t *testing.T, base string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(environment(t, "DISPATCHER_REAL_CHROMIUM")), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-prefers-reduced-motion", true),
	)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, base: base}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	command(b, network.Enable, network.EnableParams{})
	command(b, log.Enable, cdp.Empty{})
	command(b, runtime.Enable, cdp.Empty{})
	return b
}

// command sends one command of the browser's protocol.
func command[P, R any](b *browser, c cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, c, params); err != nil {
		b.t.Fatalf("%s: %v", c.Method, err)
	}
}

func (b *browser) hear(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || (u.Scheme != "data" && u.Scheme+"://"+u.Host != b.base) {
			b.fault("request to " + e.Request.URL)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.fault(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *page.EventJavascriptDialogOpening:
		if !strings.Contains(e.Message, "? The present one") && !strings.HasSuffix(e.Message, "included?") { // not a question of the dashboard's
			b.fault("dialog: " + e.Message)
		}
		go func() {
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	case *runtime.EventExceptionThrown:
		b.fault(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.fault(fmt.Sprintf("console.%s: %v", e.Type, e.Args))
	}
}

func (b *browser) fault(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expected == "" || !strings.Contains(text, b.expected) {
		b.faults = append(b.faults, text)
	}
}

// expect lets one kind of console message pass until it is called again.
func (b *browser) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = part
}

// clean fails the test if anything happened that must not.
func (b *browser) clean(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		b.t.Errorf("%s: %s", where, f)
	}
	b.faults = nil
}

func (b *browser) run(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		where, _ := chromedp.Run(b.ctx, chromedp.Location())
		text, _ := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
		b.t.Fatalf("%v at %s:\n%.1500s", err, where, text)
	}
}

// stepTimeout bounds one step on a busy machine.
const stepTimeout = 20 * time.Second

// eval runs a script of the test's, which the page's policy does not concern.
func eval[T any](b *browser, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return out
}

// until waits until a script's expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression)); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
}

func (b *browser) as(l look) {
	b.t.Helper()
	command(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 600,
	})
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}},
	})
}

// open goes to a page and waits for its heading.
func (b *browser) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.base+path), seen("h1"))
}

func seen(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(chromedp.CSS(selector))
}

// typed types into the focused or named element.
func typed(selector, keys string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(selector), keys)
}

// picture keeps a screenshot of the whole page in DISPATCHER_ARTIFACTS, where
// scripts/test-real says that it is; without it, among the test's artifacts.
func (b *browser) picture(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	dir := b.t.ArtifactDir()
	if kept := os.Getenv("DISPATCHER_ARTIFACTS"); kept != "" {
		dir = filepath.Join(kept, "dashboard")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// submit presses the form's button and waits for the next page.
func (b *browser) submit(selector, next string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector)), seen(next))
}
