package storage

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func openStore(t *testing.T, cfg Config) (*Store, error) {
	t.Helper()
	s, err := Open(cfg)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

func TestAStoreKeepsItsRegistryAndItsNodeKey(t *testing.T) {
	for name, cfg := range map[string]Config{
		"on disk":          {Dir: t.TempDir()},
		"key elsewhere":    {Dir: t.TempDir(), NodeKeyFile: filepath.Join(t.TempDir(), "secret")},
		"in a test's disk": {Dir: "data", FS: vfs.NewMem()},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := openStore(t, cfg)
			noErr(t, err)
			_, err = s.Registry().PutTenant(delivery.Tenant{ID: "acme"}, MustNotExist)
			noErr(t, err)
			made, err := s.Registry().CreateSubscriber(testSubscriber(1, "hook", "*"))
			noErr(t, err)
			noErr(t, s.Close())
			s, err = openStore(t, cfg)
			noErr(t, err)
			got, err := s.Registry().GetSubscriber(1, "hook")
			noErr(t, err)
			if got.Signing[0].Secrets[0] != made.Signing[0].Secrets[0] {
				t.Error("the secret is another one")
			}
		})
	}
}

func TestAStoreWhoseNodeKeyIsLostSaysSoAndChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(t, Config{Dir: dir})
	noErr(t, err)
	noErr(t, s.Close())
	path := filepath.Join(dir, NodeKeyFile)
	right, err := os.ReadFile(path)
	noErr(t, err)
	noErr(t, os.Remove(path))
	_, err = openStore(t, Config{Dir: dir})
	wantErr(t, err, ErrNoNodeKey)
	if _, err := os.Stat(path); err == nil {
		t.Error("a new key was made over sealed secrets")
	}
	noErr(t, os.WriteFile(path, make([]byte, NodeKeySize), 0o600))
	_, err = openStore(t, Config{Dir: dir})
	wantErr(t, err, ErrWrongKey)
	noErr(t, os.WriteFile(path, right, 0o600))
	noErr(t, os.Chmod(path, 0o640))
	_, err = openStore(t, Config{Dir: dir})
	wantErr(t, err, ErrNodeKeyFile)
	noErr(t, os.Chmod(path, 0o600))
	_, err = openStore(t, Config{Dir: dir})
	noErr(t, err)
}

func TestNothingInTheStoreIsReadableByOthersAfterRegistering(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(t, Config{Dir: filepath.Join(dir, "data")})
	noErr(t, err)
	_, err = s.Registry().PutTenant(delivery.Tenant{ID: "acme"}, MustNotExist)
	noErr(t, err)
	info, err := os.Stat(filepath.Join(dir, "data"))
	noErr(t, err)
	if info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the directory has mode %v", info.Mode())
	}
	key, err := os.Stat(filepath.Join(dir, "data", NodeKeyFile))
	noErr(t, err)
	if key.Mode().Perm() != fs.FileMode(0o600) {
		t.Errorf("the key has mode %v", key.Mode())
	}
}

// What was visible but never synced is gone after opening again, from the
// cache of matches too.
func TestRegistrySurvivesReopen(t *testing.T) {
	s, err := openStore(t, Config{Dir: "data", FS: vfs.NewMem()})
	noErr(t, err)
	r := s.Registry()
	_, err = r.PutTenant(delivery.Tenant{ID: "acme"}, MustNotExist)
	noErr(t, err)
	made, err := r.CreateSubscriber(testSubscriber(1, "hook", "*"))
	noErr(t, err)
	for range 2 {
		if got, err := r.Match(1, "x", nil); err != nil || len(got) != 1 || got[0] != made.Num {
			t.Errorf("match %v, %v", got, err)
		}
		noErr(t, s.Reopen())
	}
	if _, err := r.CreateSubscriber(testSubscriber(1, "hook-2", "*")); err != nil {
		t.Error(err)
	}
}
