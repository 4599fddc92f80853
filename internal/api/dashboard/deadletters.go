package dashboard

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// maxPerSecond bounds what a form may ask for.
const maxPerSecond = 100_000

// groupRow is a group of dead letters.
type groupRow struct {
	engine.DeadGroup
	ReasonName string
	Met        string // what the last attempt met; "" = there was none
	Show       string
	Replay     string
}

func newGroupRow(g engine.DeadGroup) groupRow {
	row := groupRow{DeadGroup: g, ReasonName: g.Reason.String()}
	if _, met, ok := strings.Cut(g.Signature, ": "); ok {
		row.Met = met
		if status, ok := strings.CutPrefix(met, "status "); ok {
			row.Met = "HTTP " + status
		}
	}
	which := []string{"tenant", g.Tenant, "subscriber", g.Subscriber, "signature", g.Signature}
	row.Show = query(Root+"deliveries", append(which, "state", "dead")...)
	row.Replay = query(Root+"dlq/replay", which...)
	return row
}

type deadPage struct {
	page
	Filter  filterForm
	Tenants []string
	Groups  []groupRow
	Seen    int
	More    bool
	Jobs    []jobView
}

func (d *Dashboard) deadLetters(w http.ResponseWriter, r *http.Request, v *visitor) {
	form := readFilter(r)
	groups, err := d.groups(r, form)
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	names, err := d.tenantNames(r.Context())
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	jobs, _, err := d.node.ListReplays(r.Context(), "", engine.Page{Limit: maxJobs})
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	p := deadPage{page: d.newPage(v, "dlq", "Dead letters"), Filter: form, Tenants: names, Seen: groups.Seen, More: groups.More}
	for _, j := range jobs {
		p.Jobs = append(p.Jobs, newJobView(j))
	}
	for _, g := range groups.Groups {
		p.Groups = append(p.Groups, newGroupRow(g))
	}
	d.render(w, r, http.StatusOK, "dlq.html", p)
}

func (d *Dashboard) groups(r *http.Request, form filterForm) (engine.DeadGroups, error) {
	filter, err := form.filter()
	if err != nil {
		return engine.DeadGroups{}, err
	}
	return d.node.DeadGroups(r.Context(), filter)
}

type confirmPage struct {
	page
	Filter filterForm
	Group  groupRow
	Count  int
	More   bool
}

// confirmReplay shows what a replay would do before it does it.
func (d *Dashboard) confirmReplay(w http.ResponseWriter, r *http.Request, v *visitor) {
	form := readFilter(r)
	groups, err := d.groups(r, form)
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	if len(groups.Groups) == 0 {
		d.refuse(w, r, v, http.StatusNotFound, "No such dead letters", "They were replayed or purged meanwhile, or their retention has passed.")
		return
	}
	p := confirmPage{page: d.newPage(v, "dlq", "Replay dead letters"), Filter: form, Group: newGroupRow(groups.Groups[0]), More: groups.More}
	for _, g := range groups.Groups {
		p.Count += g.Count
	}
	d.render(w, r, http.StatusOK, "replay.html", p)
}

func (d *Dashboard) startReplay(w http.ResponseWriter, r *http.Request, v *visitor) {
	form := readFilter(r)
	filter, err := form.filter()
	if err == nil && filter.Tenant == "" {
		err = &engine.InvalidError{Fields: []engine.FieldError{{Field: "tenant", Rule: "required", Hint: "choose a group of dead letters"}}}
	}
	pace, paceErr := readPace(r.PostFormValue("per_second"))
	if err == nil {
		err = paceErr
	}
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	job, err := d.node.StartReplay(r.Context(), filter, pace)
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	d.logger.Info("dashboard_action", "action", "replay_dead", "replay", job.ID, "tenant", filter.Tenant, "subscriber", filter.Subscriber)
	http.Redirect(w, r, link("dlq", "replays", job.ID), http.StatusSeeOther)
}

func readPace(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= maxPerSecond) {
		return 0, &engine.InvalidError{Fields: []engine.FieldError{{
			Field: "per_second", Value: text[:min(len(text), 40)], Rule: "a number from 0 to 100000", Hint: "leave it empty for no limit",
		}}}
	}
	return n, nil
}

type jobPage struct {
	page
	Job jobView
}

func (d *Dashboard) replayJob(w http.ResponseWriter, r *http.Request, v *visitor) {
	job, err := d.node.GetReplay(r.Context(), r.PathValue("job"))
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	name := "job.html"
	if r.Header.Get("Hx-Request") != "" {
		name = "job.html#progress"
	}
	p := jobPage{page: page{Visitor: v}, Job: newJobView(job)}
	if name == "job.html" {
		p.page = d.newPage(v, "dlq", "Replay")
	}
	d.render(w, r, http.StatusOK, name, p)
}

func (d *Dashboard) stopReplay(w http.ResponseWriter, r *http.Request, v *visitor) {
	job, err := d.node.CancelReplay(r.Context(), r.PathValue("job"))
	if err != nil {
		d.fail(w, r, v, err)
		return
	}
	d.logger.Info("dashboard_action", "action", "cancel_replay", "replay", job.ID, "tenant", job.Filter.Tenant)
	http.Redirect(w, r, link("dlq", "replays", job.ID), http.StatusSeeOther)
}
