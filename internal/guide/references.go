package guide

import (
	"io"

	"github.com/dispatcher-engine/dispatcher/internal/api"
	"github.com/dispatcher-engine/dispatcher/internal/cli"
	"github.com/dispatcher-engine/dispatcher/internal/config"
)

//go:generate go test . -run ^TestReferencesAreCurrent$ -rewrite

// References are the documents that are generated, by their path from the
// repository's root.
var References = map[string]func(io.Writer) error{
	"docs/api.md":           api.Reference,
	"docs/cli.md":           cli.Reference,
	"docs/configuration.md": config.Reference,
}
