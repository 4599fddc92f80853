package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

const (
	// rowsPerPage are shown of any list.
	rowsPerPage = 50
	// suggested tenants are offered where a form asks for one.
	suggested = 200
)

type tenantsPage struct {
	page
	Tenants []*delivery.Tenant
	Next    string
}

func (d *Dashboard) tenants(w http.ResponseWriter, r *http.Request, v *visitor) {
	rows, next, err := d.node.ListTenants(r.Context(), engine.Page{Limit: rowsPerPage, Cursor: r.FormValue("cursor")})
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	p := tenantsPage{page: d.newPage(v, "tenants", "Tenants and subscribers"), Tenants: rows}
	if next != "" {
		p.Next = query(Root+"tenants", "cursor", next)
	}
	d.render(w, r, http.StatusOK, "tenants.html", p)
}

// subscriberRow is a subscriber in a list.
type subscriberRow struct {
	ID, URL string
	Topics  []string
	Health  health
}

// health is how a subscriber is doing, in words.
type health struct {
	Status, StatusReason  string
	Breaker, Waiting      string
	InFlight, Consecutive int
	LastSuccess           time.Time
	FailingSince, NextDue time.Time
	Verdict, Class        string
}

func newHealth(s *delivery.Subscriber, st *engine.SubscriberStatus) health {
	h := health{
		Status: s.Status.String(), StatusReason: reasonName(s.StatusReason), Breaker: st.Breaker, Waiting: reasonName(st.Waiting),
		InFlight: st.InFlight, Consecutive: st.Consecutive, LastSuccess: st.LastSuccess, FailingSince: st.FailingSince, NextDue: st.NextDue,
	}
	switch {
	case s.Status != delivery.SubscriberActive:
		h.Verdict, h.Class = h.Status, tone(h.Status)
	case st.Breaker == delivery.BreakerOpen.String():
		h.Verdict, h.Class = "breaker open", "bad"
	case st.Consecutive > 0:
		h.Verdict, h.Class = "failing", "warn"
	case st.LastSuccess.IsZero():
		h.Verdict, h.Class = "no answer yet", "calm"
	default:
		h.Verdict, h.Class = "healthy", "good"
	}
	return h
}

type tenantPage struct {
	page
	Tenant *delivery.Tenant
	Rows   []subscriberRow
	Next   string
}

func (d *Dashboard) tenant(w http.ResponseWriter, r *http.Request, v *visitor) {
	id := r.PathValue("tenant")
	t, err := d.node.GetTenant(r.Context(), id)
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	subs, next, err := d.node.ListSubscribers(r.Context(), id, engine.Page{Limit: rowsPerPage, Cursor: r.FormValue("cursor")})
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	p := tenantPage{page: d.newPage(v, "tenants", t.ID), Tenant: t}
	for _, listed := range subs {
		s, status, err := d.node.GetSubscriber(r.Context(), id, listed.ID)
		if err != nil {
			continue // deleted since it was listed
		}
		p.Rows = append(p.Rows, subscriberRow{ID: s.ID, URL: shownURL(s.URL), Topics: s.Topics, Health: newHealth(s, &status)})
	}
	if next != "" {
		p.Next = query(link("tenants", id), "cursor", next)
	}
	d.render(w, r, http.StatusOK, "tenant.html", p)
}

type subscriberPage struct {
	page
	Tenant  string
	S       *delivery.Subscriber
	URL     string
	Health  health
	Signing []signingRow
	Retry   []string
	Recent  []engine.DeliveryInfo
	Fresh   *freshSecret
}

// signingRow says what signs, without the secrets.
type signingRow struct {
	Scheme   string
	Secrets  int
	OldUntil time.Time
}

// freshSecret is the secret that this very request made.
type freshSecret struct{ Scheme, Value string }

func (d *Dashboard) subscriber(w http.ResponseWriter, r *http.Request, v *visitor) {
	d.showSubscriber(w, r, v, nil)
}

func (d *Dashboard) showSubscriber(w http.ResponseWriter, r *http.Request, v *visitor, fresh *freshSecret) {
	tenant, id := r.PathValue("tenant"), r.PathValue("subscriber")
	s, status, err := d.node.GetSubscriber(r.Context(), tenant, id)
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	p := subscriberPage{
		page: d.newPage(v, "tenants", s.ID), Tenant: tenant, S: s, URL: shownURL(s.URL), Health: newHealth(s, &status),
		Signing: signingRows(s, time.Now()), Retry: ladder(s.Retry), Fresh: fresh,
	}
	p.Recent, _, err = d.node.ListDeliveries(r.Context(), engine.DeliveryFilter{Tenant: tenant, Subscriber: id}, engine.Page{Limit: 10})
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	d.render(w, r, http.StatusOK, "subscriber.html", p)
}

func signingRows(s *delivery.Subscriber, now time.Time) []signingRow {
	var out []signingRow
	for _, scheme := range s.Signing {
		row := signingRow{Scheme: scheme.Scheme}
		for _, secret := range scheme.Secrets {
			if secret.ExpiresAt.IsZero() || secret.ExpiresAt.After(now) {
				row.Secrets++
				if secret.ExpiresAt.After(row.OldUntil) {
					row.OldUntil = secret.ExpiresAt
				}
			}
		}
		out = append(out, row)
	}
	return out
}

// ladder writes a retry ladder's waits.
func ladder(r delivery.Retry) []string {
	if r.Base > 0 {
		return []string{"exponential from " + span(r.Base)}
	}
	schedule := r.Schedule
	if len(schedule) == 0 {
		schedule = delivery.DefaultSchedule
	}
	out := make([]string, len(schedule))
	for i, wait := range schedule {
		out[i] = span(wait)
	}
	return out
}

// subscriberAction does what one of the page's buttons says.
func (d *Dashboard) subscriberAction(w http.ResponseWriter, r *http.Request, v *visitor) {
	tenant, id, action := r.PathValue("tenant"), r.PathValue("subscriber"), r.PathValue("action")
	here := link("tenants", tenant, "subscribers", id)
	done, err := "", error(nil)
	switch action {
	case "pause":
		_, err = d.node.PauseSubscriber(r.Context(), tenant, id)
		done = "Paused. What comes for it is held until it is resumed."
	case "resume":
		_, err = d.node.ResumeSubscriber(r.Context(), tenant, id)
		done = "Resumed. What was held goes out now."
	case "test":
		here, err = d.testSubscriber(r.Context(), tenant, id, here)
		done = "A test event is on its way. Reload to see its answer."
	case "rotate":
		d.rotate(w, r, v)
		return
	default:
		d.nothingHere(w, r, v)
		return
	}
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	d.logger.Info("dashboard_action", "action", action, "tenant", tenant, "subscriber", id)
	v.say("ok", done)
	http.Redirect(w, r, here, http.StatusSeeOther)
}

// testSubscriber sends a test event and returns the page of its delivery.
func (d *Dashboard) testSubscriber(ctx context.Context, tenant, id, here string) (string, error) {
	receipt, err := d.node.TestSubscriber(ctx, tenant, id)
	if err != nil || receipt.Deliveries == 0 {
		return here, err
	}
	return link("deliveries", delivery.ID{Event: receipt.Key, Subscriber: id}.String()), nil
}

// rotate makes a new secret and shows it in its answer, which is not a redirect:
// the secret is kept nowhere from which a second page could show it.
func (d *Dashboard) rotate(w http.ResponseWriter, r *http.Request, v *visitor) {
	tenant, id, scheme := r.PathValue("tenant"), r.PathValue("subscriber"), r.PostFormValue("scheme")
	s, err := d.node.RotateSecret(r.Context(), tenant, id, engine.RotateInput{Scheme: scheme})
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	d.logger.Info("dashboard_action", "action", "rotate", "tenant", tenant, "subscriber", id)
	fresh := &freshSecret{Scheme: scheme}
	for _, candidate := range s.Signing {
		if (scheme == "" || candidate.Scheme == scheme) && len(candidate.Secrets) > 0 {
			fresh.Scheme, fresh.Value = candidate.Scheme, candidate.Secrets[0].Value
			break
		}
	}
	d.showSubscriber(w, r, v, fresh)
}

// tenantNames are offered where a form asks for a tenant.
func (d *Dashboard) tenantNames(ctx context.Context) ([]string, error) {
	rows, _, err := d.node.ListTenants(ctx, engine.Page{Limit: suggested})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(rows))
	for i, t := range rows {
		names[i] = t.ID
	}
	return names, nil
}
