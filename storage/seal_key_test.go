package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNodeKeyIsMadeOnceAndFoundAgain(t *testing.T) {
	dir := t.TempDir()
	first, err := openNodeKey(filepath.Join(dir, NodeKeyFile), false)
	if err != nil {
		t.Fatal(err)
	}
	second, err := openNodeKey(filepath.Join(dir, NodeKeyFile), true)
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Error("the second start has another key")
	}
	info, err := os.Stat(filepath.Join(dir, NodeKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || info.Size() != NodeKeySize {
		t.Errorf("key file: mode %04o, %d bytes", info.Mode().Perm(), info.Size())
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("directory holds %v, %v; want the key alone", entries, err)
	}
}

func TestACrashWhileMakingTheKeyLeavesNoHalfKey(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, NodeKeyFile+".partial")
	// As a crash, or a hostile umask of an earlier start, may leave it.
	if err := os.WriteFile(left, []byte("half"), 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := openNodeKey(filepath.Join(dir, NodeKeyFile), false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("partial file is still there: %v", err)
	}
}

func TestAMissingKeyIsNeverReplaced(t *testing.T) {
	dir := t.TempDir()
	_, err := openNodeKey(filepath.Join(dir, NodeKeyFile), true)
	if !errors.Is(err, ErrNoNodeKey) {
		t.Fatalf("got %v, want ErrNoNodeKey", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("something was made: %v", entries)
	}
}

func TestUnusableKeyFilesSayWhatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		make func(path string) error
		want string
	}{
		"readable by the group": {func(p string) error { return os.WriteFile(p, make([]byte, NodeKeySize), 0o640) }, "0640"},
		"readable by all":       {func(p string) error { return os.WriteFile(p, make([]byte, NodeKeySize), 0o604) }, "chmod 600"},
		"empty":                 {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "0 bytes"},
		"one byte short":        {func(p string) error { return os.WriteFile(p, make([]byte, NodeKeySize-1), 0o600) }, "31 bytes"},
		"with a line feed":      {func(p string) error { return os.WriteFile(p, make([]byte, NodeKeySize+1), 0o600) }, "33 bytes"},
		"a directory":           {func(p string) error { return os.Mkdir(p, 0o700) }, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, NodeKeyFile)
			if err := tc.make(path); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				// Whatever the umask made of it.
				mode := os.FileMode(0o600)
				switch tc.want {
				case "0640":
					mode = 0o640
				case "chmod 600":
					mode = 0o604
				}
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			for _, needed := range []bool{true, false} {
				_, err := openNodeKey(path, needed)
				if !errors.Is(err, ErrNodeKeyFile) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
					t.Errorf("needed %v: got %v, want ErrNodeKeyFile with %q and the path", needed, err, tc.want)
				}
			}
		})
	}
}

func TestNodeKeyMayBeALinkToWhereSecretsAreKept(t *testing.T) {
	vault, dir := t.TempDir(), t.TempDir()
	want, err := openNodeKey(filepath.Join(vault, NodeKeyFile), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(vault, NodeKeyFile), filepath.Join(dir, NodeKeyFile)); err != nil {
		t.Fatal(err)
	}
	got, err := openNodeKey(filepath.Join(dir, NodeKeyFile), true)
	if err != nil || got != want {
		t.Errorf("got %v, want the linked key", err)
	}
}

func TestKeyOfAnUnwritableDirectoryIsAnError(t *testing.T) {
	if _, err := openNodeKey(filepath.Join(t.TempDir(), "missing", NodeKeyFile), false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
