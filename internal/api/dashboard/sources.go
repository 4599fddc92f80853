package dashboard

import (
	"net/http"
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// sourceRow is an ingress source, without its secrets.
type sourceRow struct {
	ID, Scheme, Destination, Subscriber string
	OriginURL                           string
	Path                                string
	Secrets                             int
	Dedupe                              string
	UpdatedAt                           time.Time
	Unreadable                          bool
}

type sourcesPage struct {
	page
	Tenant  string
	Tenants []string
	Rows    []sourceRow
	Next    string
	Ingress string
}

func (d *Dashboard) sources(w http.ResponseWriter, r *http.Request, v *visitor) {
	names, err := d.tenantNames(r.Context())
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	p := sourcesPage{page: d.newPage(v, "sources", "Ingress sources"), Tenant: r.FormValue("tenant"), Tenants: names, Ingress: d.node.IngressURL()}
	if p.Tenant == "" && len(names) > 0 {
		p.Tenant = names[0]
	}
	if p.Tenant != "" {
		rows, next, err := d.node.ListSources(r.Context(), p.Tenant, engine.Page{Limit: rowsPerPage, Cursor: r.FormValue("cursor")})
		if err != nil {
			d.fail(w, r, v, err)
			return
		}
		for _, s := range rows {
			p.Rows = append(p.Rows, newSourceRow(p.Tenant, s))
		}
		if next != "" {
			p.Next = query(Root+"sources", "tenant", p.Tenant, "cursor", next)
		}
	}
	d.render(w, r, http.StatusOK, "sources.html", p)
}

func newSourceRow(tenant string, s *engine.Source) sourceRow {
	row := sourceRow{
		ID: s.ID, Scheme: string(s.Config.Scheme), Destination: s.Config.Destination.Type, Subscriber: s.Subscriber,
		Path: "/webhook/" + tenant + "/" + s.ID, Secrets: len(s.Config.Secrets), UpdatedAt: s.UpdatedAt,
		Unreadable: s.Config.Scheme == "", Dedupe: "the scheme's id",
	}
	if s.Config.Destination.URL != "" {
		row.OriginURL = shownURL(s.Config.Destination.URL)
	}
	if s.Config.DedupeHeader != "" {
		row.Dedupe = s.Config.DedupeHeader
	}
	if s.Config.DedupeBody {
		row.Dedupe += " and body"
	}
	return row
}
