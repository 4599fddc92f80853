//go:build real

package realtest

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/signing"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// hooksName is the name in the certificate of the node that Chromium posts to.
const hooksName = "hooks.test"

// edge is a node with an ingress for HTTPS, and what it answered.
type edge struct {
	*engine.Engine
	cert *x509.Certificate
	port uint16

	mu       sync.Mutex
	answered []ingress.Answered
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{}
	dir := t.TempDir()
	config := &ingress.Config{Addr: "127.0.0.1:0", KernelEvery: -1, Observer: ingress.Observer{Answered: func(a ingress.Answered) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.answered = append(e.answered, a)
	}}}
	config.CertFile, config.KeyFile = e.certificate(t, dir)
	node, err := engine.New(engine.Config{
		Storage: storage.Config{Dir: filepath.Join(dir, "data"), Watermark: storage.Watermark{Bytes: -1}}, Ingress: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Engine = node
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := node.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.port = netip.MustParseAddrPort(node.IngressURL()[len("https://"):]).Port()
	if _, _, err := node.PutTenant(t.Context(), tenant, engine.TenantInput{}); err != nil {
		t.Fatal(err)
	}
	source := fmt.Sprintf(`{"scheme":"standard","secrets":["whsec_%s"],"destination":{"type":"fanout"}}`, keyBytes)
	if _, _, err := node.PutSource(t.Context(), tenant, "web", json.RawMessage(source)); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *edge) certificate(t *testing.T, dir string) (certFile, keyFile string) {
	t.Helper()
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(testnet.Leaf{Names: []string{hooksName}})
	if err != nil {
		t.Fatal(err)
	}
	if e.cert, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := testnet.EncodeKeyPair(cert)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, data := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func (e *edge) origin() string { return fmt.Sprintf("https://%s:%d", hooksName, e.port) }

// protocols are those over which events were stored.
func (e *edge) protocols() []delivery.Protocol {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []delivery.Protocol
	for _, a := range e.answered {
		if a.Outcome.Stored() {
			out = append(out, a.Protocol)
		}
	}
	return out
}

// posted is what the page saw of one request.
type posted struct {
	Status   int    `json:"status"`
	Body     string `json:"body"`
	Protocol string `json:"protocol"`
}

// postScript sends one event with fetch and waits until the browser says which
// protocol carried it.
const postScript = `(async (headers, body) => {
	performance.clearResourceTimings();
	const response = await fetch("/webhook/` + tenant + `/web", { method: "POST", headers, body });
	const text = await response.text();
	let entry;
	while (!(entry = performance.getEntriesByType("resource").find((e) => e.name === response.url))) {
		await new Promise((resolve) => setTimeout(resolve, 10));
	}
	return { status: response.status, body: text, protocol: entry.nextHopProtocol };
})(%s, %s)`

// postFrom signs an event and has the page that the tab shows send it.
func postFrom(tab context.Context, t *testing.T, id string, body []byte) posted {
	t.Helper()
	signed, err := signing.Sign(
		signing.SchemeConfig{Scheme: signing.Standard, Keys: signing.NewRing(signing.NewSecret("whsec_" + keyBytes))},
		signing.Message{ID: id, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	signed.Header.Set("Content-Type", "application/json")
	headers, err := json.Marshal(flat(signed.Header))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(string(body))
	if err != nil {
		t.Fatal(err)
	}
	out, err := chromedp.Run(tab, chromedp.Evaluate[posted](fmt.Sprintf(postScript, headers, text), chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("post %s: %v", id, err)
	}
	return out
}

// open shows any page of the ingress: its 404 is enough of one to post from.
func (e *edge) open(tab context.Context, t *testing.T) {
	t.Helper()
	if err := chromedp.Do(tab, chromedp.Navigate(e.origin()+"/")); err != nil {
		t.Fatalf("open %s: %v", e.origin(), err)
	}
}

// A real browser's QUIC, told to use nothing else for this origin.
func TestRealChromiumPostsOverHTTP3(t *testing.T) {
	e := newEdge(t)
	tab := openTab(t, "MAP "+hooksName+" 127.0.0.1", trusting(e.cert),
		chromedp.Flag("origin-to-force-quic-on", fmt.Sprintf("%s:%d", hooksName, e.port)))
	e.open(tab, t)
	bodies := [][]byte{[]byte(`{}`), vectors(t).Body, bytes.Repeat([]byte("ü"), 300_000)}
	for i, body := range bodies {
		id := fmt.Sprintf("msg_%d", i)
		got := postFrom(tab, t, id, body)
		if got.Status != http.StatusAccepted || got.Protocol != "h3" || got.Body != `{"status":"buffered","id":"web:`+id+`"}`+"\n" {
			t.Errorf("%s: %+v", id, got)
		}
		event, err := e.GetEvent(t.Context(), tenant, "web:"+id)
		if err != nil || event.Size != int64(len(body)) {
			t.Errorf("%s is not stored: %v", id, err)
		}
	}
	if got := postFrom(tab, t, "msg_0", bodies[0]); got.Status != http.StatusOK || got.Protocol != "h3" {
		t.Errorf("again: %+v", got)
	}
	for _, p := range e.protocols() {
		if p != delivery.ProtocolHTTP3 {
			t.Errorf("the node saw an event over %s", p)
		}
	}
	if n := len(e.protocols()); n != len(bodies)+1 {
		t.Errorf("%d events, want %d", n, len(bodies)+1)
	}
}

// Nobody tells the browser: it learns of HTTP/3 from our Alt-Svc over TCP, and
// goes there by itself.
func TestRealChromiumFollowsAltSvcToHTTP3(t *testing.T) {
	e := newEdge(t)
	// QUIC only takes certificates of public authorities, but for hosts of this
	// list; its port is another one, so nothing is forced on ours.
	tab := openTab(t, "MAP "+hooksName+" 127.0.0.1", trusting(e.cert), chromedp.Flag("origin-to-force-quic-on", hooksName+":1"))
	e.open(tab, t)
	body := []byte(`{"a":1}`)
	for i := 0; ; i++ {
		got := postFrom(tab, t, fmt.Sprintf("msg_%d", i), body)
		if got.Status != http.StatusAccepted {
			t.Fatalf("event %d: %+v", i, got)
		}
		if got.Protocol == "h3" {
			break
		}
		// The connection over TCP may be kept as long as it is used; a browser that
		// does not come to HTTP/3 at all ends with browserLimit.
		if err := chromedp.Do(tab, chromedp.Navigate("about:blank")); err != nil {
			t.Fatal(err)
		}
		e.open(tab, t)
	}
	if seen := e.protocols(); !slices.Contains(seen, delivery.ProtocolHTTP3) {
		t.Errorf("the node saw %v", seen)
	}
}
