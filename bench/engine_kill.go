package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
)

// kill ends a node with SIGKILL in the middle of a drain, starts another one on
// the same data and counts at the receiver.
func (r *engineRun) kill(ctx context.Context, round int) error {
	spec := r.newData()
	n, err := startNode(ctx, spec)
	if err != nil {
		return err
	}
	alive := n
	defer func() {
		if alive != nil {
			alive.kill()
		}
	}()
	if err := n.register(ctx, r.plain(r.c.Subscribers).group); err != nil {
		return err
	}
	m := Measure{
		Workload: "kill", Round: round + 1, Subscribers: r.c.Subscribers, Events: r.c.Kill, Deliveries: r.c.Kill,
		Kill: &Kill{Queued: r.c.Kill},
	}
	if m.Disk, err = host.Syncs(r.dir.Path, diskProbe, 0); err != nil {
		return err
	}
	if err := r.killInTheMiddle(ctx, n, &m); err != nil {
		return err
	}
	alive = nil
	if alive, err = r.restart(ctx, spec, &m); err != nil {
		return err
	}
	r.measures = append(r.measures, m)
	k := m.Kill
	r.progress.say("round %d: kill -9 with %d queued, %d delivered: %d lost, %d duplicates, back at work after %.2f s",
		m.Round, k.Queued, k.Before, k.Lost, k.Duplicates, k.Back)
	stopped := alive
	alive = nil
	return stopped.stop()
}

func (r *engineRun) killInTheMiddle(ctx context.Context, n *node, m *Measure) error {
	tag := fmt.Sprintf("kill-%d", r.nodes)
	if err := r.begin(ctx, tag, m.Events, m.Subscribers, false); err != nil {
		return err
	}
	if err := r.preload(m.Events)(ctx, n, tag, m); err != nil {
		return err
	}
	resumed := make(chan error, 1)
	go func() { resumed <- n.act(ctx, m.Subscribers, "resume") }()
	err := r.receiver.Call(ctx, "wait", load.Wait{Arrived: m.Events / 5, Quiet: quiet}, nil)
	n.kill()
	if resumeErr := <-resumed; err == nil && resumeErr != nil {
		// The drain overtook the resumes: some subscribers are paused yet, and are
		// resumed after the restart.
		r.progress.say("killed before every subscriber was resumed")
	}
	if err != nil {
		return err
	}
	// What the dead process had written is answered within this.
	const inFlight = 100 * time.Millisecond
	time.Sleep(inFlight)
	var seen load.Seen
	if err := r.receiver.Call(ctx, "seen", nil, &seen); err != nil {
		return err
	}
	m.Kill.Before = seen.Arrived
	if seen.Arrived >= m.Events {
		r.fail("kill, round %d: everything was delivered before the kill, nothing was tested; queue more", m.Round)
	}
	return r.receiver.Call(ctx, "mark", nil, nil)
}

// restart starts a node on the data of the killed one and waits until
// everything has arrived.
func (r *engineRun) restart(ctx context.Context, spec nodeSpec, m *Measure) (*node, error) {
	n, err := startNode(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := n.act(ctx, m.Subscribers, "resume"); err != nil {
		n.kill()
		return nil, err
	}
	if err := r.arrived(ctx, m); err != nil {
		n.kill()
		return nil, err
	}
	k, s := m.Kill, m.Seen
	k.Lost, k.Duplicates = s.Expected-s.Arrived, s.Duplicates
	k.Ready = n.ready.Seconds()
	if s.AfterMark > 0 {
		k.Back, k.Done = (s.AfterMark - n.started).Seconds(), (s.Last - n.started).Seconds()
	}
	m.timed(k.Done, s.Arrived-k.Before)
	return n, nil
}
