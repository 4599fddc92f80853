package guide

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the references anew")

func TestReferencesAreCurrent(t *testing.T) {
	t.Setenv("DISPATCHER_ADDR", "") // a default that the help shows
	for path, write := range References {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(root, filepath.FromSlash(path))
			if *rewrite {
				if err := os.WriteFile(name, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s is not what the program says of itself: run make generate and look at the difference", path)
			}
		})
	}
}
