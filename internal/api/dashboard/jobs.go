package dashboard

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// maxJobs is how many replays a page lists, the newest.
const maxJobs = 20

// jobView is a replay as a page shows it.
type jobView struct {
	ID            string
	Tenant        string
	Subscriber    string
	Signature     string
	Done, Total   int
	Counted       bool   // Total is known
	Width         string // of the progress bar, 0 to 100
	Waiting       bool   // it has not begun, or waits for the node
	Running       bool   // it has not ended
	Stopped       bool   // it was canceled
	Failure, Took string
	PassedOver    int
	Begun         time.Time
}

func newJobView(j engine.ReplayJob) jobView {
	v := jobView{
		ID: j.ID, Tenant: j.Filter.Tenant, Subscriber: j.Filter.Subscriber, Signature: j.Filter.Signature,
		Done: j.Replayed, Total: max(j.Total, j.Replayed), Counted: j.Counted, PassedOver: j.PassedOver,
		Waiting: j.State == engine.ReplayPending, Running: !j.State.Ended(), Stopped: j.State == engine.ReplayCanceled,
		Failure: j.Why, Begun: j.CreatedAt,
	}
	width := 100.0
	if j.State != engine.ReplayDone {
		width = 100 * float64(v.Done+v.PassedOver) / float64(max(v.Total, v.Done+v.PassedOver, 1))
	}
	v.Width = coordinate(width)
	end := j.EndedAt
	if v.Running {
		end = time.Now()
	}
	v.Took = span(end.Sub(j.CreatedAt))
	return v
}
