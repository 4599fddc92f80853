package ingress

import (
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

var leafForever testnet.Leaf

func TestCertificateIsReloadedWhenItsFilesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, dir := authority(t), t.TempDir()
		year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
		var events []CertificateEvent
		cfg := Config{Logger: slog.New(slog.DiscardHandler), Observer: Observer{Certificate: func(e CertificateEvent) { events = append(events, e) }}}
		replace := func(until time.Time) {
			cfg.CertFile, cfg.KeyFile = writeCertificate(t, ca, dir, testnet.Leaf{NotAfter: until})
			for _, name := range []string{cfg.CertFile, cfg.KeyFile} {
				if err := os.Chtimes(name, until, until); err != nil { // never the same as before
					t.Fatal(err)
				}
			}
		}
		replace(year(2031))
		c, err := loadCertificate(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		serves := func() int {
			pair, err := c.get(nil)
			if err != nil {
				t.Fatal(err)
			}
			return pair.Leaf.NotAfter.Year()
		}
		replace(year(2032))
		if got := serves(); got != 2031 {
			t.Errorf("the files were looked at within a second: %d", got)
		}
		time.Sleep(checkEvery)
		if got := serves(); got != 2032 {
			t.Errorf("not reloaded: %d", got)
		}
		// Half replaced: the old pair is served, and the fault is told.
		key, err := os.ReadFile(cfg.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		replace(year(2033))
		newKey, err := os.ReadFile(cfg.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cfg.KeyFile, key, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(checkEvery)
			if got := serves(); got != 2032 {
				t.Errorf("half replaced: %d", got)
			}
		}
		if err := os.WriteFile(cfg.KeyFile, newKey, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkEvery)
		if got := serves(); got != 2033 {
			t.Errorf("replaced: %d", got)
		}
		// Gone: still the last one.
		if err := os.Remove(cfg.CertFile); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkEvery)
		if got := serves(); got != 2033 {
			t.Errorf("files gone: %d", got)
		}
		good, bad := 0, 0
		for _, e := range events {
			if e.Err != nil {
				bad++
			} else {
				good++
			}
		}
		if good != 3 || bad != 3 {
			t.Errorf("%d loads, %d faults were told, want 3 and 3", good, bad)
		}
	})
}
