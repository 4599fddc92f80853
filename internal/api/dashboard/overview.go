package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
)

// liveEvery is how old the live figures may be: they are read once for all who
// look within that time.
const liveEvery = time.Second

// liveCache holds the last figures.
type liveCache struct {
	mu   sync.Mutex
	at   time.Time
	view liveView
}

// liveView is what the overview shows and fetches again and again.
type liveView struct {
	At        time.Time
	NotReady  string // why publishes are refused; "" = they are not
	Drawn     bool   // there are readings to draw
	Covers    string // what time the charts cover
	Cards     []card
	Latency   []quantileView
	Chart50   spark
	Chart99   spark
	ChartMost string
	Protocols []protocolShare
	Bar       []segment
	Success   string
	Attempts  string
	Failures  []share
	Notices   []notice
	Worst     []engine.TenantBacklog
}

// card is one figure with its history.
type card struct {
	Label, Value, Unit, Hint, Href, Class string
	Spark                                 spark
}

type quantileView struct{ Name, Value string }

type protocolShare struct {
	share
	Live, Idle int
}

// notice is something that happened to subscribers, or is true of the disk.
type notice struct {
	Label, Value, Hint, Class string
}

type overviewPage struct {
	page
	Live    *liveView
	Ingress string
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request, v *visitor) {
	p := overviewPage{page: d.newPage(v, "overview", "Overview"), Live: d.figures(), Ingress: d.node.IngressURL()}
	d.render(w, r, http.StatusOK, "overview.html", p)
}

func (d *Dashboard) liveFragment(w http.ResponseWriter, r *http.Request, _ *visitor) {
	d.render(w, r, http.StatusOK, "overview.html#live", d.figures())
}

// figures returns the live figures, read anew if they are older than a second.
func (d *Dashboard) figures() *liveView {
	d.live.mu.Lock()
	defer d.live.mu.Unlock()
	if time.Since(d.live.at) >= liveEvery {
		d.live.view = d.readFigures()
		d.live.at = time.Now()
	}
	view := d.live.view
	return &view
}

func (d *Dashboard) readFigures() liveView {
	var a activity
	if d.config.Activity != nil {
		a = newActivity(d.config.Activity())
	}
	view := liveView{At: time.Now(), Drawn: len(a.samples) > 1}
	if err := d.node.Ready(); err != nil {
		view.NotReady = err.Error()
	}
	backlog := d.node.Backlog()
	view.Cards = append(flowCards(a), d.queueCards(backlog, view.At)...)
	view.drawLatency(a)
	d.protocolShares(&view, a)
	view.outcomes(a)
	view.Worst = backlog.Worst
	return view
}

// flowCards are the rates.
func flowCards(a activity) []card {
	rates := []struct {
		label, hint, class, href string
		of                       counter
	}{
		{"Published", "events made durable", "", "", publishedOf},
		{"Delivered", "deliveries that a receiver took", "good", query(Root+"deliveries", "state", "delivered"), deliveredOf},
		{"Retries", "attempts that will be repeated", "warn", query(Root+"deliveries", "state", "retrying"), retriedOf},
		{"Dead letters", "deliveries that were given up", "bad", Root + "dlq", deadOf},
	}
	cards := make([]card, 0, len(rates))
	for _, r := range rates {
		c := card{Label: r.label, Value: perSecond(a.rate(r.of)), Unit: "/s", Hint: r.hint, Class: r.class, Href: r.href}
		if len(a.samples) > 1 {
			n := grouped(a.sum(r.of))
			c.Hint = n + " in " + a.covers()
			c.Spark = newSpark(a.series(r.of), a.axis(), 0, r.label+" a second: "+n+" in all")
		}
		cards = append(cards, c)
	}
	return cards
}

// covers says how much time the readings are about.
func (a activity) covers() string {
	d := a.last().At.Sub(a.first().At)
	if d >= window-2*telemetry.HistoryStep {
		return "15 min"
	}
	return span(d.Round(time.Second))
}

// queueCards are what waits. The queue is counted in the background, so its figure
// says how old it is.
func (d *Dashboard) queueCards(b engine.Backlog, now time.Time) []card {
	queue := card{Label: "Queue", Value: "–", Unit: "waiting", Hint: "being counted", Href: query(Root+"deliveries", "state", "retrying")}
	dead := card{Label: "In the DLQ", Value: "–", Unit: "dead letters", Hint: "being counted", Href: Root + "dlq"}
	if !b.At.IsZero() {
		queue.Value, queue.Hint = grouped(b.Ready+b.Retrying+b.Parked), "nothing waits"
		if !b.Oldest.IsZero() {
			queue.Hint = "oldest " + span(now.Sub(b.Oldest)) + "; " + grouped(b.Retrying) + " wait for a retry"
		}
		dead.Value, dead.Hint = grouped(b.Dead), "counted "+ago(b.At)
		if b.Dead > 0 {
			dead.Class = "bad"
		}
	}
	return []card{queue, {Label: "In flight", Value: grouped(d.node.InFlight()), Unit: "attempts", Hint: "being sent at this moment"}, dead}
}

func (v *liveView) drawLatency(a activity) {
	first, last := a.first(), a.last()
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}} {
		value := "–"
		if at, ok := a.quantile(q.q, &first, &last); ok {
			value = span(at)
		}
		v.Latency = append(v.Latency, quantileView{q.name, value})
	}
	p50, p99 := a.quantiles(0.5), a.quantiles(0.99)
	most := 0.0
	for _, p := range p99 {
		most = max(most, p.value)
	}
	v.ChartMost = span(time.Duration(most * float64(time.Second)))
	v.Chart99 = newSpark(p99, a.axis(), most, "99th percentile of the attempts' duration, at most "+v.ChartMost)
	v.Chart50 = newSpark(p50, a.axis(), most, "median of the attempts' duration")
	v.Covers = a.covers()
}

// protocolShares says over what attempts went. Attempts without a connection have
// no protocol and are among the failures.
func (d *Dashboard) protocolShares(v *liveView, a activity) {
	first, last := a.first(), a.last()
	names := []struct {
		name, class string
		protocol    delivery.Protocol
	}{
		{"HTTP/3", "h3", delivery.ProtocolHTTP3}, {"HTTP/2", "h2", delivery.ProtocolHTTP2}, {"HTTP/1.1", "h1", delivery.ProtocolHTTP1},
	}
	parts := make([]share, 0, len(names))
	for _, n := range names {
		parts = append(parts, share{Name: n.name, Class: n.class, N: last.Attempts[n.protocol] - first.Attempts[n.protocol]})
	}
	parts = percents(parts)
	v.Bar = bar(parts)
	for i, n := range names {
		live, idle := d.node.Connections(n.protocol)
		v.Protocols = append(v.Protocols, protocolShare{share: parts[i], Live: live, Idle: idle})
	}
}

func (v *liveView) outcomes(a activity) {
	first, last := a.first(), a.last()
	all := uint64(0)
	for i := range last.Attempts {
		all += last.Attempts[i] - first.Attempts[i]
	}
	delivered := last.Reasons[delivery.ReasonDelivered] - first.Reasons[delivery.ReasonDelivered]
	v.Success, v.Attempts = percent(delivered, all), grouped(all)
	v.Failures = a.failures()
	v.Notices = []notice{
		{Label: "Breakers opened", Value: grouped(last.BreakerOpens - first.BreakerOpens), Hint: "subscribers that failed in a row"},
		{Label: "Subscribers disabled", Value: grouped(last.Disabled - first.Disabled), Hint: "gone, or failing for too long"},
	}
	for i := range v.Notices {
		if v.Notices[i].Value != "0" {
			v.Notices[i].Class = "warn"
		}
	}
	ingress := (last.IngressAccepted - first.IngressAccepted)
	refused := last.IngressRefused + last.IngressFailed - first.IngressRefused - first.IngressFailed
	v.Notices = append(v.Notices, notice{Label: "Received by the ingress", Value: grouped(ingress), Hint: grouped(refused) + " refused"})
	if last.DiskTotal > 0 {
		v.Notices = append(v.Notices, notice{
			Label: "Disk free", Value: byteSize(int64(last.DiskFree)), //nolint:gosec // a disk's size
			Hint: percent(last.DiskFree, last.DiskTotal) + " of " + byteSize(int64(last.DiskTotal)), //nolint:gosec // a disk's size
		})
	}
}

func largestFirst(parts []share) []share {
	slices.SortStableFunc(parts, func(a, b share) int {
		return cmp.Or(-cmp.Compare(a.N, b.N), strings.Compare(a.Name, b.Name))
	})
	return parts
}
