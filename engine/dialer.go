package engine

import (
	"context"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// Dialer joins a transport to a selector, as a node does, for whoever composes
// both without a node.
func Dialer(t *transport.Transport) protoselect.Dialer { return dialer{t} }

// dialer makes the transport a protoselect.Dialer: siblings meet only here.
type dialer struct{ t *transport.Transport }

// Warm implements protoselect.Dialer.
func (d dialer) Warm(ep delivery.Endpoint, want protoselect.Want) (protoselect.Conn, bool) {
	c, ok := d.t.Warm(ep, transport.Want{
		HTTP3: want.HTTP3, Alternative: want.Alternative, TCP: transport.TCPOptions(want.TCP),
	})
	if !ok {
		return nil, false // not a typed nil
	}
	return c, true
}

// DialTCP implements protoselect.Dialer.
func (d dialer) DialTCP(ctx context.Context, ep delivery.Endpoint, opts protoselect.TCPOptions) (protoselect.Conn, error) {
	c, err := d.t.DialTCP(ctx, ep, transport.TCPOptions(opts))
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ProveQUIC implements protoselect.Dialer.
func (d dialer) ProveQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (protoselect.Conn, error) {
	c, err := d.t.ProveQUIC(ctx, ep, alt)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// DialQUIC implements protoselect.Dialer.
func (d dialer) DialQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (protoselect.Conn, error) {
	c, err := d.t.DialQUIC(ctx, ep, alt)
	if err != nil {
		return nil, err
	}
	return c, nil
}
