package dashboard

import (
	"net/http"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// originRow is a route of an origin.
type originRow struct {
	Authority, Egress, State string
	OwnTLS                   bool
	Pin                      string
	PinUntil                 time.Time
	Bar                      []segment
	Shares                   []share
	TCPRTT                   string
	HTTPSRecord              string
	Alternatives             []alternativeRow
	Refusals                 uint64
	Distrusted               bool
}

// alternativeRow is an HTTP/3 alternative.
type alternativeRow struct {
	Authority, State, Source     string
	RTT                          string
	Reason                       string
	BrokenUntil, Expires         time.Time
	Wins, Losses, Answers, Fails uint64
}

func newOriginRow(row engine.ProtocolRow) originRow {
	out := originRow{
		Authority: row.Route.Origin.Authority(), Egress: row.Route.Egress, State: row.State.String(),
		OwnTLS: row.Route.Identity != (delivery.Identity{}), HTTPSRecord: row.HTTPSRecord, Refusals: row.Refusals, Distrusted: row.Distrusted,
	}
	if row.Pin != (engine.ProtocolPin{}) {
		out.Pin, out.PinUntil = row.Pin.Protocol.String(), row.Pin.Until
	}
	if row.TCPRTT > 0 {
		out.TCPRTT = span(row.TCPRTT)
	}
	out.Shares = percents([]share{
		{Name: "HTTP/3", Class: "h3", N: row.HTTP3}, {Name: "HTTP/2", Class: "h2", N: row.HTTP2}, {Name: "HTTP/1.1", Class: "h1", N: row.HTTP1},
	})
	out.Bar = bar(out.Shares)
	for _, a := range row.Alternatives {
		alt := alternativeRow{
			Authority: a.Authority, State: a.State.String(), Source: a.Source.String(), Reason: a.Reason, BrokenUntil: a.BrokenUntil,
			Expires: a.ExpiresAt, Wins: a.Wins, Losses: a.Losses, Answers: a.Answers, Fails: a.Failures,
		}
		if a.SRTT > 0 {
			alt.RTT = span(a.SRTT)
		}
		out.Alternatives = append(out.Alternatives, alt)
	}
	return out
}

type protocolsPage struct {
	page
	Rows   []originRow
	Next   string
	Probed string
	Probe  *probeView
}

// probeView is what a probe found.
type probeView struct {
	HTTPSRecord string
	Dials       []probeRow
}

type probeRow struct{ Authority, Protocol, Verdict, Detail, Took, Remote string }

func (d *Dashboard) protocols(w http.ResponseWriter, r *http.Request, v *visitor) {
	d.showProtocols(w, r, v, "", nil)
}

func (d *Dashboard) showProtocols(w http.ResponseWriter, r *http.Request, v *visitor, probed string, probe *probeView) {
	rows, next, err := d.node.Protocols(r.Context(), engine.Page{Limit: rowsPerPage, Cursor: r.FormValue("cursor")})
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	p := protocolsPage{page: d.newPage(v, "protocols", "Protocols"), Probed: probed, Probe: probe}
	for _, row := range rows {
		p.Rows = append(p.Rows, newOriginRow(row))
	}
	if next != "" {
		p.Next = query(Root+"protocols", "cursor", next)
	}
	d.render(w, r, http.StatusOK, "protocols.html", p)
}

// protocolAction pins, forgets or probes an origin.
func (d *Dashboard) protocolAction(w http.ResponseWriter, r *http.Request, v *visitor) {
	origin, action := r.PathValue("origin"), r.PathValue("action")
	done, err := "", error(nil)
	switch action {
	case "pin":
		done, err = d.pin(r, origin)
	case "forget":
		err = d.node.ForgetProtocol(r.Context(), origin)
		done = origin + " is forgotten, its pin included."
	case "probe":
		d.probe(w, r, v, origin)
		return
	default:
		d.nothingHere(w, r, v)
		return
	}
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	d.logger.Info("dashboard_action", "action", action, "origin", origin)
	v.say("ok", done)
	http.Redirect(w, r, Root+"protocols", http.StatusSeeOther)
}

func (d *Dashboard) pin(r *http.Request, origin string) (string, error) {
	var ttl time.Duration
	if text := r.PostFormValue("ttl"); text != "" {
		var err error
		if ttl, err = time.ParseDuration(text); err != nil {
			return "", &engine.InvalidError{Fields: []engine.FieldError{{
				Field: "ttl", Value: text[:min(len(text), 40)], Rule: "a duration", Hint: "choose one of the list",
			}}}
		}
	}
	pin, err := d.node.PinProtocol(r.Context(), origin, r.PostFormValue("protocol"), ttl)
	if err != nil {
		return "", err
	}
	done := origin + " is pinned to " + pin.Protocol.String()
	if pin.Until.IsZero() {
		return done + " until it is forgotten.", nil
	}
	return done + " for " + span(time.Until(pin.Until).Round(time.Second)) + ".", nil
}

func (d *Dashboard) probe(w http.ResponseWriter, r *http.Request, v *visitor, origin string) {
	result, err := d.node.ProbeProtocol(r.Context(), origin)
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	d.logger.Info("dashboard_action", "action", "probe", "origin", origin)
	view := &probeView{HTTPSRecord: result.HTTPSRecord.String(), Dials: []probeRow{newProbeRow(result.TCP)}}
	for _, dial := range result.HTTP3 {
		view.Dials = append(view.Dials, newProbeRow(dial))
	}
	d.showProtocols(w, r, v, origin, view)
}

func newProbeRow(dial engine.ProbeDial) probeRow {
	return probeRow{
		Authority: dial.Authority, Protocol: protocolName(dial.Protocol), Verdict: string(dial.Verdict), Detail: dial.Detail,
		Took: span(dial.Took), Remote: dial.Handshake.Remote,
	}
}
