package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
)

//go:embed assets templates/*.html
var embedded embed.FS

var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// assets are the files that pages refer to. Their path has a hash of all of
// them, so that a browser keeps them for good and yet never has old ones.
type assets struct {
	version string
	files   map[string][]byte
}

func loadAssets() (*assets, error) {
	a := &assets{files: map[string][]byte{}}
	entries, err := fs.ReadDir(embedded, "assets")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	sum := sha256.New()
	for _, entry := range entries {
		if contentTypes[path.Ext(entry.Name())] == "" {
			continue // a licence
		}
		body, err := embedded.ReadFile("assets/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("dashboard: %w", err)
		}
		a.files[entry.Name()] = body
		sum.Write(body)
	}
	a.version = hex.EncodeToString(sum.Sum(nil)[:8])
	return a, nil
}

// path returns where a page finds a file.
func (a *assets) path(name string) (string, error) {
	if a.files[name] == nil {
		return "", fmt.Errorf("dashboard: no asset %q", name)
	}
	return Root + "assets/" + a.version + "/" + name, nil
}

func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	body := a.files[r.PathValue("name")]
	if body == nil || r.PathValue("version") != a.version {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", contentTypes[path.Ext(r.PathValue("name"))])
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(body)
}
