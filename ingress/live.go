package ingress

import (
	"errors"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// What of a [Config] can be changed while requests are served.

// SetTenantQuota changes Config.TenantQuota; nil is none.
func (in *Ingress) SetTenantQuota(limit *RateLimit) { in.tenantQuota.Store(limit) }

// SetControlPlaneToken has sources read with another token from the next read on.
// Without a control plane it is an error.
func (in *Ingress) SetControlPlaneToken(token signing.Secret) error {
	if in.plane == nil {
		return errors.New("ingress: no control plane is configured")
	}
	if text := token.Reveal(); text == "" || signing.ValidateHeader("x-token", text) != nil {
		return errors.New("ingress: control plane token: is required, in visible ASCII characters (value not shown)")
	}
	in.plane.token.Store(&token)
	return nil
}
