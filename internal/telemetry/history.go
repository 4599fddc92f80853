package telemetry

import (
	"context"
	"sync"
	"time"
)

const (
	// HistoryStep is the time between two readings of a [History].
	HistoryStep = 5 * time.Second
	// historyLen readings are kept: a quarter of an hour.
	historyLen = 180
)

// History keeps the last quarter of an hour of [Totals], so that what happened
// before somebody looked can be drawn. Its memory is bounded, and a reading every
// [HistoryStep] is all it costs.
type History struct {
	read func() Totals
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	samples []Totals // oldest first
}

// NewHistory makes a history of a node's metrics. It keeps nothing until Start.
func (m *Metrics) NewHistory() *History { return &History{read: m.Totals} }

// Start takes the first reading and goes on until Stop.
func (h *History) Start(ctx context.Context) {
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.add(h.read())
	h.wg.Go(func() {
		ticker := time.NewTicker(HistoryStep)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				h.add(h.read())
			}
		}
	})
}

// Stop ends the readings. What was read stays.
func (h *History) Stop() {
	if h.stop != nil {
		h.stop()
	}
	h.wg.Wait()
}

func (h *History) add(t Totals) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == historyLen {
		copy(h.samples, h.samples[1:])
		h.samples = h.samples[:historyLen-1]
	}
	h.samples = append(h.samples, t)
}

// Samples returns the readings kept, oldest first, and one of this moment.
func (h *History) Samples() []Totals {
	now := h.read()
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(append(make([]Totals, 0, len(h.samples)+1), h.samples...), now)
}
