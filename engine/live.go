package engine

import (
	"cmp"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/sched"
	"github.com/dispatcher-engine/dispatcher/signing"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// What of a [Config] can be changed while the node runs. Each holds from its return
// on, for what begins then.

// Defaults are what subscribers and tenants get that set none when they are made;
// zero fields are those of [Config].
type Defaults struct {
	Concurrency int
	Timeout     time.Duration
	MaxShare    int
}

// SetDefaults changes what is made from now on. Who was made keeps what he got.
func (e *Engine) SetDefaults(d Defaults) {
	d.Concurrency = cmp.Or(d.Concurrency, delivery.DefaultConcurrency)
	d.Timeout = cmp.Or(d.Timeout, delivery.DefaultTimeout)
	e.defaults.Store(&d)
}

// SetAddressPolicy judges addresses and URLs by another policy. Connections that were
// dialled under the last one end once they are idle.
func (e *Engine) SetAddressPolicy(config netguard.Config) error {
	if err := e.guard.SetPolicy(config); err != nil {
		return err
	}
	e.transport.Renew()
	return nil
}

// SetHTTP3 changes for which origins HTTP/3 may be used.
func (e *Engine) SetHTTP3(mode protoselect.Mode) error { return e.selector.SetMode(mode) }

// SetBreaker changes when circuits open, and for how long.
func (e *Engine) SetBreaker(policy sched.BreakerPolicy) error { return e.sched.SetBreaker(policy) }

// SetInFlight changes how many attempts may be in flight, and how many of those slow
// receivers may hold; zero is the default.
func (e *Engine) SetInFlight(most, slow int) error { return e.sched.SetInFlight(most, slow) }

// SetRetention changes how long what is finished is kept.
func (e *Engine) SetRetention(r storage.Retention) { e.store.SetRetention(r) }

// SetTenantQuota changes what the ingress takes of each tenant; nil is all. Without an
// ingress it does nothing.
func (e *Engine) SetTenantQuota(limit *ingress.RateLimit) {
	if e.ingress != nil {
		e.ingress.SetTenantQuota(limit)
	}
}

// SetControlPlaneToken changes the token that sources are read with.
func (e *Engine) SetControlPlaneToken(token signing.Secret) error {
	if e.ingress == nil {
		return nil
	}
	return e.ingress.SetControlPlaneToken(token)
}

// SetOperator changes which tenant hears of the node, "" = none.
func (e *Engine) SetOperator(tenant string) {
	e.operatorID.Store(&tenant)
	e.alarms.kick()
}
