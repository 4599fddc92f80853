package bench

import (
	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// Measure is one round of one workload.
type Measure struct {
	Workload    string `json:"workload"`
	Round       int    `json:"round"`
	Subscribers int    `json:"subscribers"`
	Events      int    `json:"events"`
	Deliveries  int    `json:"deliveries"`
	// Seconds from the first publish (or the resume) to the last delivery; with
	// accept to the last acknowledgement.
	Seconds float64 `json:"seconds"`
	// Rate is deliveries a second; with accept, events acknowledged a second.
	Rate float64 `json:"rate"`
	// AcceptRate is events acknowledged a second.
	AcceptRate float64 `json:"accept_rate,omitempty"`
	// Floors measured right before, the best of several concurrencies.
	Floor     FloorRate `json:"floor"`
	FloorConn FloorRate `json:"floor_client_conn"`
	// Ratio is Rate over Floor.Rate, RatioConn over FloorConn.Rate.
	Ratio     float64 `json:"ratio,omitempty"`
	RatioConn float64 `json:"ratio_client_conn,omitempty"`
	// NodeCPU is the node's CPU time in ms per 1,000 deliveries (events with
	// accept).
	NodeCPU float64 `json:"node_cpu_ms_per_1000"`
	// NodeShare is the node's CPU time over the wall clock: 1 = one core.
	NodeShare float64 `json:"node_cores"`
	// RSS of the node after the workload, what of it are pages of the program's
	// file, and the most during the workload; bytes.
	RSS  int64 `json:"rss"`
	File int64 `json:"rss_file"`
	Peak int64 `json:"rss_max"`
	// SyncsPerEvent is the node's fsyncs per event, from its metrics.
	SyncsPerEvent float64 `json:"syncs_per_event"`
	// NodeSync is the mean duration of those, ms.
	NodeSync float64 `json:"node_sync_mean_ms"`
	// Disk is what a sync of the data directory's disk took right before; with
	// latency before and after.
	Disk stats.Latency `json:"disk_sync"`
	// PacedDisk is, with latency, what one took after it at the rate of the events.
	PacedDisk stats.Latency `json:"disk_sync_paced,omitzero"`
	// Ack is from a publish's request to its answer.
	Ack    stats.Latency `json:"ack"`
	AckCDF []stats.Point `json:"ack_cdf,omitempty"`
	// Seen is what the receiver saw.
	Seen load.Seen `json:"seen"`
	// Procs is, with cores, the node's GOMAXPROCS.
	Procs int `json:"gomaxprocs,omitempty"`
	// Beside is, with hang, the rate of the same without the hanging subscriber.
	Beside float64 `json:"beside,omitempty"`
	// Kill is what a kill -9 cost.
	Kill *Kill `json:"kill,omitempty"`
}

// FloorRate is the best of a floor's settings.
type FloorRate struct {
	Rate        float64       `json:"rate"`
	Concurrency int           `json:"concurrency"`
	Conns       int           `json:"conns,omitempty"` // that a multiplexed stack shared
	CPU         float64       `json:"cpu_ms_per_1000"` // of the posting process
	Latency     stats.Latency `json:"latency"`
}

// Kill is what a kill -9 in the middle of a drain cost.
type Kill struct {
	Queued     int `json:"queued"`
	Before     int `json:"delivered_before"`
	Lost       int `json:"lost"`
	Duplicates int `json:"duplicates"`
	// Ready is from the restart to the first yes of /readyz, Back to the first new
	// delivery, Done to the last; seconds.
	Ready float64 `json:"ready_s"`
	Back  float64 `json:"back_s"`
	Done  float64 `json:"done_s"`
}

// timed fills in what follows from the times.
func (m *Measure) timed(seconds float64, done int) {
	m.Seconds = seconds
	if seconds > 0 {
		m.Rate = float64(done) / seconds
	}
}

// compare fills in the ratios.
func (m *Measure) compare() {
	if m.Floor.Rate > 0 {
		m.Ratio = m.Rate / m.Floor.Rate
	}
	if m.FloorConn.Rate > 0 {
		m.RatioConn = m.Rate / m.FloorConn.Rate
	}
}

// spend fills in what the node used between two moments.
func (m *Measure) spend(before, after moment) {
	units := m.Deliveries
	if units == 0 {
		units = m.Events
	}
	cpu := (after.usage.CPU - before.usage.CPU).Seconds()
	m.NodeCPU = cpu * 1000 / (float64(units) / 1000)
	if m.Seconds > 0 {
		m.NodeShare = cpu / m.Seconds
	}
	m.RSS, m.File, m.Peak = after.usage.RSS, after.usage.File, after.usage.Peak
	syncs := after.syncs - before.syncs
	m.SyncsPerEvent = syncs / float64(m.Events)
	if syncs > 0 {
		m.NodeSync = (after.syncTime - before.syncTime) * 1000 / syncs
	}
}
