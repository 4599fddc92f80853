//go:build real

package realtest

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// browserLimit ends a browser that hangs.
const browserLimit = 90 * time.Second

// openTab starts a Chromium without a window and returns a tab of it, for
// chromedp.Do. It ends with the test, and its profile goes with it. It resolves
// no name: hosts says where each is ("MAP hooks.test 127.0.0.1").
func openTab(t *testing.T, hosts string, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(environment(t, "DISPATCHER_REAL_CHROMIUM")),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(browserLimit),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", hosts+", MAP * ~NOTFOUND"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox refuses root
	}
	ctx, cancelAll := context.WithTimeout(t.Context(), browserLimit)
	t.Cleanup(cancelAll)
	ctx, cancelProcess := chromedp.NewExecAllocator(ctx, append(options, more...)...)
	t.Cleanup(cancelProcess)
	ctx, cancelTab := chromedp.NewContext(ctx, chromedp.WithErrorf(t.Logf))
	t.Cleanup(cancelTab)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	t.Cleanup(func() {
		// Ends the process and waits for it, so that its profile can be removed.
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("end Chromium: %v", err)
		}
	})
	return ctx
}

// trusting lets the browser accept one certificate, over QUIC, too, which
// otherwise wants one that a public authority has issued.
func trusting(cert *x509.Certificate) chromedp.ExecAllocatorOption {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return chromedp.Flag("ignore-certificate-errors-spki-list", base64.StdEncoding.EncodeToString(sum[:]))
}
