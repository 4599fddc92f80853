package cli

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// pages are the flags of a list.
type pages struct {
	limit  int
	cursor string
}

func (p *pages) bind(c *cobra.Command) {
	c.Flags().IntVar(&p.limit, "limit", 50, "rows to show, 1 to 1000")
	c.Flags().StringVar(&p.cursor, "cursor", "", "go on after a previous page")
}

// list fetches one page and prints it.
func (a *app) list(ctx context.Context, path string, query url.Values, p pages, columns ...column) error {
	if query == nil {
		query = url.Values{}
	}
	for name := range query {
		if query.Get(name) == "" {
			query.Del(name)
		}
	}
	query.Set("limit", strconv.Itoa(p.limit))
	if p.cursor != "" {
		query.Set("cursor", p.cursor)
	}
	var page list
	if err := a.client.do(ctx, http.MethodGet, path, query, nil, &page); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.Out, page)
	}
	if err := printTable(a.Out, page.Data, columns...); err != nil {
		return err
	}
	if page.NextCursor != "" {
		a.note("more: --cursor %s", page.NextCursor)
	}
	return nil
}

// show prints an object, all of it with --json.
func (a *app) show(o object, names ...string) error {
	if a.json {
		return printJSON(a.Out, o)
	}
	return printFields(a.Out, o, names...)
}
