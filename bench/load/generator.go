package load

import (
	"context"
	"io"

	"github.com/dispatcher-engine/dispatcher/bench/worker"
)

// ServeGenerator is the load generator's process: it answers calls until in
// ends.
func ServeGenerator(ctx context.Context, in io.Reader, out io.Writer) error {
	return worker.Serve(ctx, in, out, map[string]worker.Method{
		"floor":   worker.Handle(func(ctx context.Context, f Floor) (Posted, error) { return f.Run(ctx) }),
		"publish": worker.Handle(func(ctx context.Context, p Publish) (Published, error) { return p.Run(ctx) }),
	})
}
