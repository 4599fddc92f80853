package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// ReplayDelivery sends a dead delivery again, under the same id; a delivered
// one only with force.
func (e *Engine) ReplayDelivery(ctx context.Context, id string, force bool) (DeliveryInfo, error) {
	key, num, err := e.locate(ctx, id)
	if err != nil {
		return DeliveryInfo{}, err
	}
	sub, err := e.directory.Subscriber(num)
	if err != nil {
		return DeliveryInfo{}, e.registryFault("subscriber", id, err)
	}
	errs := e.store.Replay(ctx, time.Now(), []storage.Replay{{Event: key, Subscriber: sub, Force: force}})
	if err := errs[0]; err != nil {
		return DeliveryInfo{}, e.replayFault(id, err)
	}
	e.sched.Kick(num)
	info, _, err := e.GetDelivery(ctx, id)
	return info, err
}

func (e *Engine) replayFault(id string, err error) error {
	switch {
	case errors.Is(err, delivery.ErrState):
		return &ConflictError{
			Field: "id", Value: clipped(id), Rule: "only a dead delivery is replayed, or with force a delivered one",
			Hint: `send {"force":true} to replay a delivered one; what is pending needs no replay`,
		}
	case errors.Is(err, delivery.ErrNoDelivery), errors.Is(err, delivery.ErrEventGone):
		return fmt.Errorf("delivery %q: %w: its payload is gone", clipped(id), ErrNotFound)
	}
	return e.storeFault(err)
}

// ReplaySubscriber replays one subscriber's dead letters of a time window.
func (e *Engine) ReplaySubscriber(ctx context.Context, tenant, id string, in ReplayInput) (ReplayResult, error) {
	return e.ReplayDead(ctx, DeliveryFilter{Tenant: tenant, Subscriber: id, Since: in.Since, Until: in.Until}, in)
}

const (
	bulkPage = 200
	// bulkMost bounds one call, so that it ends; the cursor goes on.
	bulkMost = 100_000
	// replayFinish bounds the last commit of a replay whose request has ended.
	replayFinish = 10 * time.Second
)

// ReplayDead replays the dead letters that match, at the given rate. It goes on
// from in.Cursor and returns one if the limit stopped it.
func (e *Engine) ReplayDead(ctx context.Context, in DeliveryFilter, how ReplayInput) (ReplayResult, error) {
	var pace *rate.Limiter
	if how.PerSecond > 0 {
		pace = rate.NewLimiter(rate.Limit(how.PerSecond), max(1, int(how.PerSecond)))
	}
	limit := how.Limit
	if limit <= 0 || limit > bulkMost {
		limit = bulkMost
	}
	result := ReplayResult{}
	next, err := e.eachDead(ctx, in, how.Cursor, func(refs []storage.DeliveryRef) (bool, error) {
		refs = refs[:min(len(refs), limit-result.Replayed)]
		for part := range slices.Chunk(refs, replayStep(how.PerSecond)) {
			n, err := e.replayRefs(ctx, part, how.Force, pace)
			result.Replayed += n
			if how.Progress != nil {
				how.Progress(result.Replayed)
			}
			if err != nil {
				return false, err
			}
		}
		return result.Replayed < limit, nil
	})
	result.Cursor = next
	return result, err
}

// replayStep is how many are replayed in one commit: with a rate about a second's
// worth, so that they go out evenly and a watcher sees them go.
func replayStep(perSecond float64) int {
	if perSecond <= 0 || perSecond > bulkPage {
		return bulkPage
	}
	return max(1, int(perSecond))
}

// replayRefs replays some; what was replayed, purged or is gone meanwhile is
// passed over. If ctx ends while it waits for its rate, what it had waited for
// already is replayed all the same, and counted.
func (e *Engine) replayRefs(ctx context.Context, refs []storage.DeliveryRef, force bool, pace *rate.Limiter) (int, error) {
	var list []storage.Replay
	var ended error
	for _, ref := range refs {
		sub, err := e.directory.Subscriber(ref.Subscriber)
		if err != nil {
			continue // deleted meanwhile
		}
		if pace != nil {
			if ended = pace.Wait(ctx); ended != nil {
				break
			}
		}
		list = append(list, storage.Replay{Event: ref.Event, Subscriber: sub, Force: force})
	}
	if len(list) == 0 {
		return 0, ended
	}
	if ended != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), replayFinish)
		defer cancel()
	}
	done := 0
	for i, err := range e.store.Replay(ctx, time.Now(), list) {
		switch {
		case err == nil:
			done++
			e.sched.Kick(list[i].Subscriber.Num)
		case errors.Is(err, delivery.ErrState), errors.Is(err, delivery.ErrNoDelivery), errors.Is(err, delivery.ErrEventGone):
		default:
			return done, e.storeFault(err)
		}
	}
	return done, ended
}

// PurgeDead removes the dead letters that match for good, payloads included.
func (e *Engine) PurgeDead(ctx context.Context, in DeliveryFilter) (int, error) {
	purged := 0
	_, err := e.eachDead(ctx, in, "", func(refs []storage.DeliveryRef) (bool, error) {
		for _, err := range e.store.Purge(ctx, time.Now(), refs) {
			switch {
			case err == nil:
				purged++
			case errors.Is(err, delivery.ErrNoDelivery):
			default:
				return false, e.storeFault(err)
			}
		}
		return true, nil
	})
	return purged, err
}

// deadFilter resolves a filter of dead letters, which needs a tenant.
func (e *Engine) deadFilter(in DeliveryFilter) (storage.Filter, error) {
	if in.State != "" && in.State != delivery.StateDead.String() {
		var f faults
		f.add("state", in.State, "dead letters are dead", "leave it out")
		return storage.Filter{}, f.err()
	}
	in.State = ""
	f, _, err := e.filter(in)
	if err != nil {
		return f, err
	}
	if f.Tenant == 0 {
		var missing faults
		missing.add("tenant", "", "required", "name the tenant whose dead letters are meant")
		return f, missing.err()
	}
	return f, nil
}

// eachDead calls fn with page after page of matching dead letters. It returns
// where to go on when fn said stop, "" at the end.
func (e *Engine) eachDead(ctx context.Context, in DeliveryFilter, cursor string, fn func([]storage.DeliveryRef) (bool, error)) (string, error) {
	f, err := e.deadFilter(in)
	if err != nil {
		return "", err
	}
	for {
		page, err := e.store.DeadLetters(ctx, f, cursor, bulkPage)
		if err != nil {
			return cursor, e.listFault(Page{Cursor: cursor}, err)
		}
		refs := make([]storage.DeliveryRef, 0, len(page.Items))
		for _, item := range page.Items {
			refs = append(refs, storage.DeliveryRef{Event: item.Event, Subscriber: item.Subscriber})
		}
		more, err := fn(slices.Clip(refs))
		if err != nil || !more {
			return cursor, err
		}
		if cursor = page.Next; cursor == "" {
			return "", nil
		}
	}
}
