package engine

import (
	"context"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/sched"
)

// alarmPorts ties alarms to this engine's parts, which may be made after it.
func (e *Engine) alarmPorts() alarmPorts {
	observed := e.config.Operations.Observed
	if observed == nil {
		observed = func(string, OperationalResult) {}
	}
	return alarmPorts{
		heard: func(tenant delivery.TenantNum, topic string) (bool, error) {
			nums, err := e.registry.Match(tenant, topic, nil)
			return len(nums) > 0, err
		},
		publish: e.publishOperational,
		identify: func(sub delivery.SubscriberNum) (string, error) {
			s, err := e.directory.Subscriber(sub)
			if err != nil {
				return "", err
			}
			return s.ID, nil
		},
		open: func(sub delivery.SubscriberNum) (bool, error) {
			h, _, err := e.store.Health(sub)
			return h.Breaker != delivery.BreakerClosed, err
		},
		topic: func(ctx context.Context, key delivery.EventKey) (string, error) {
			event, _, err := e.store.EventTargets(ctx, key)
			if err != nil {
				return "", err
			}
			return event.Topic, nil
		},
		operator: e.operator, observed: observed, logger: e.logger, node: string(e.config.Storage.Node),
	}
}

// operator returns the tenant that hears of the node, 0 = none.
func (e *Engine) operator() delivery.TenantNum {
	id := *e.operatorID.Load()
	if id == "" {
		return 0
	}
	t, err := e.directory.TenantByID(id)
	if err != nil {
		return 0 // it may be made later
	}
	return t.Num
}

// alarmed has the scheduler report to the alarms, beside whom it reported to.
func (e *Engine) alarmed(o *sched.Observer) {
	o.BreakerChanged = both(o.BreakerChanged, e.alarms.breakerChanged)
	o.AttemptFinished = both(o.AttemptFinished, func(f sched.AttemptFinished) {
		if f.Next != delivery.NextDead {
			return
		}
		topic, event := "", delivery.EventKey{}
		if f.Event != nil {
			topic, event = f.Event.Topic, f.Event.Key
		}
		e.alarms.died(f.Subscriber.Tenant, f.Subscriber.Num, f.Reason, topic, event)
	})
	o.Moved = both(o.Moved, func(d sched.Decided) {
		if d.Next == delivery.NextDead {
			e.alarms.died(d.Tenant, d.Subscriber, d.Reason, "", d.Event)
		}
	})
}
