package engine

import (
	"context"
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress/origin"
)

// search delivers a batch and, when the origin's answer may be the fault of one
// of its events, halves it until that one stands alone:
//
//	    50 ✗
//	  ┌──┴──┐
//	25 ✓  25 ✗          a refusal (400, 422 …): at once
//	     ┌──┴──┐        a failure (500, hang …): if an event failed before
//	   12 ✓  13 ✗ …     nothing at all (no connection, 429 …): never
//
// A failure of both first halves means that the origin is down and no event is
// at fault. The search has one deadline; what is not decided by then is retried.
type search struct {
	post  func(ctx context.Context, p *prepared, calls []*call) delivery.Result
	p     *prepared
	calls []*call
	// faulty are the parts that have to be halved, in the order of the tree.
	faulty []part
	end    bool
}

// part is some of a batch's events, which went out together.
type part struct {
	calls   []*call
	result  delivery.Result
	verdict origin.Verdict
}

// searchRequests is how many requests' time a search may take.
const searchRequests = 3

func newSearch(post func(context.Context, *prepared, []*call) delivery.Result, p *prepared, calls []*call) *search {
	return &search{post: post, p: p, calls: calls}
}

// run gives every call its result.
func (s *search) run(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, searchRequests*s.p.sub.Timeout, errBatchTimeout)
	defer cancel()
	// A sender that panics leaves no call without a result.
	for _, c := range s.calls {
		c.result = delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseLocal, Detail: "the batch was not sent to its end"}
	}
	whole := s.send(ctx, s.calls)
	if whole.verdict == origin.VerdictSuspect && !slices.ContainsFunc(s.calls, failedBefore) {
		return // once is chance
	}
	if !whole.splits() {
		return
	}
	first, second := s.halve(ctx, whole)
	if whole.verdict == origin.VerdictSuspect && !first.gotThrough() && !second.gotThrough() {
		return
	}
	for s.push(first, second); len(s.faulty) > 0 && !s.end; {
		next := s.faulty[0]
		s.faulty = s.faulty[1:]
		s.push(s.halve(ctx, next))
	}
	for _, left := range s.faulty {
		left.undecided()
	}
}

func failedBefore(c *call) bool { return c.attempt > 1 }

// send makes one request and notes its result with its events.
func (s *search) send(ctx context.Context, calls []*call) part {
	ctx, cancel := context.WithTimeoutCause(ctx, s.p.sub.Timeout, errTimeout)
	defer cancel()
	p := part{calls: calls, result: s.post(ctx, s.p, calls)}
	outcome := delivery.Classify(p.result, time.Now())
	p.verdict = origin.Judge(p.result, outcome)
	for _, c := range calls {
		c.result = p.result
	}
	if outcome.Class == delivery.ClassGone && len(calls) > 1 {
		// It disables the subscriber. One event's end says so; the others wait.
		part{calls: calls[1:]}.undecided()
	}
	return p
}

// halve sends the two halves of a part.
func (s *search) halve(ctx context.Context, whole part) (first, second part) {
	half := len(whole.calls) / 2
	first = s.send(ctx, whole.calls[:half])
	if first.silent() {
		second = part{calls: whole.calls[half:], result: whole.result, verdict: whole.verdict}
		if len(second.calls) == 1 {
			second.undecided()
		}
	} else {
		second = s.send(ctx, whole.calls[half:])
	}
	s.end = s.end || first.silent() || second.silent()
	return first, second
}

func (s *search) push(parts ...part) {
	for _, p := range parts {
		if p.splits() {
			s.faulty = append(s.faulty, p)
		}
	}
}

// splits reports whether one of several events may be at fault.
func (p part) splits() bool {
	return len(p.calls) > 1 && (p.verdict == origin.VerdictRejected || p.verdict == origin.VerdictSuspect)
}

// gotThrough reports whether the origin is well, whatever it said of the events.
func (p part) gotThrough() bool {
	return p.verdict == origin.VerdictDelivered || p.verdict == origin.VerdictRejected
}

// silent reports whether the origin, or a stop of ours, ends the search.
func (p part) silent() bool {
	return p.verdict == origin.VerdictDown || p.verdict == origin.VerdictInterrupted
}

// undecided gives the events of a refusal that may be another one's fault a
// result that is no end: the origin did not take them, and they are retried.
func (p part) undecided() {
	for _, c := range p.calls {
		if delivery.Classify(c.result, time.Now()).Class.Final() {
			c.result = delivery.Result{
				Sent: delivery.SentRefused, Detail: "the origin refused the whole batch, and which event is at fault was not found out",
				Protocol: c.result.Protocol, Remote: c.result.Remote,
			}
		}
	}
}
