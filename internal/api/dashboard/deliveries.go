package dashboard

import (
	"net/http"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// filterForm is a filter as the form has it.
type filterForm struct {
	Tenant, Subscriber, State, Reason, Topic, Signature, Since, Until string
}

func readFilter(r *http.Request) filterForm {
	return filterForm{
		Tenant: r.FormValue("tenant"), Subscriber: r.FormValue("subscriber"), State: r.FormValue("state"), Reason: r.FormValue("reason"),
		Topic: r.FormValue("topic"), Signature: r.FormValue("signature"), Since: r.FormValue("since"), Until: r.FormValue("until"),
	}
}

// pairs are the form's fields for a link.
func (f filterForm) pairs() []string {
	return []string{
		"tenant", f.Tenant, "subscriber", f.Subscriber, "state", f.State, "reason", f.Reason, "topic", f.Topic,
		"signature", f.Signature, "since", f.Since, "until", f.Until,
	}
}

// Narrowed reports whether the filter says anything.
func (f filterForm) Narrowed() bool { return f != filterForm{} }

// filter reads the form's times, which a browser sends without a zone: UTC, as
// all times of the dashboard.
func (f filterForm) filter() (engine.DeliveryFilter, error) {
	out := engine.DeliveryFilter{
		Tenant: f.Tenant, Subscriber: f.Subscriber, State: f.State, Reason: f.Reason, Topic: f.Topic, Signature: f.Signature,
	}
	var err error
	if out.Since, err = instant("since", f.Since); err == nil {
		out.Until, err = instant("until", f.Until)
	}
	return out, err
}

func instant(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339Nano} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	const most = 40
	return time.Time{}, &engine.InvalidError{Fields: []engine.FieldError{{
		Field: field, Value: text[:min(len(text), most)], Rule: "a time in UTC", Hint: "write 2026-01-02T15:04",
	}}}
}

type deliveriesPage struct {
	page
	Filter  filterForm
	States  []delivery.State
	Reasons []delivery.Reason
	Tenants []string
	Rows    []engine.DeliveryInfo
	Next    string
	First   string // the list's beginning; "" = this is it
}

func (d *Dashboard) deliveries(w http.ResponseWriter, r *http.Request, v *visitor) {
	form := readFilter(r)
	filter, err := form.filter()
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	cursor := r.FormValue("cursor")
	rows, next, err := d.node.ListDeliveries(r.Context(), filter, engine.Page{Limit: rowsPerPage, Cursor: cursor})
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	names, err := d.tenantNames(r.Context())
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	p := deliveriesPage{
		page: d.newPage(v, "deliveries", "Deliveries"), Filter: form, States: delivery.States(), Reasons: delivery.Reasons()[1:],
		Tenants: names, Rows: rows,
	}
	here := Root + "deliveries"
	if next != "" {
		p.Next = query(here, append(form.pairs(), "cursor", next)...)
	}
	if cursor != "" {
		p.First = query(here, form.pairs()...)
	}
	d.render(w, r, http.StatusOK, "deliveries.html", p)
}

type deliveryPage struct {
	page
	D          engine.DeliveryInfo
	EventID    string
	Reason     string
	Replayable bool
	Pending    bool
	Waterfall  waterfall
}

func (d *Dashboard) delivery(w http.ResponseWriter, r *http.Request, v *visitor) {
	info, timeline, err := d.node.GetDelivery(r.Context(), r.PathValue("id"))
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	p := deliveryPage{
		page: d.newPage(v, "deliveries", "Delivery"), D: info, EventID: "event is gone", Reason: reasonName(info.Reason),
		Replayable: info.State == delivery.StateDead, Pending: !info.State.Terminal(), Waterfall: newWaterfall(timeline),
	}
	if info.Event != nil {
		p.EventID = info.Event.ID
	}
	name := "delivery.html"
	if r.Header.Get("Hx-Request") != "" {
		name = "delivery.html#progress"
	}
	d.render(w, r, http.StatusOK, name, p)
}

func (d *Dashboard) replayDelivery(w http.ResponseWriter, r *http.Request, v *visitor) {
	id := r.PathValue("id")
	if _, err := d.node.ReplayDelivery(r.Context(), id, false); err != nil {
		d.fail(w, r, v, err)
		return
	}
	d.logger.Info("dashboard_action", "action", "replay", "delivery", id)
	v.say("ok", "Replayed under the same webhook-id.")
	http.Redirect(w, r, link("deliveries", id), http.StatusSeeOther)
}
