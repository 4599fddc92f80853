package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// multiplexed are the connections of an HTTP/2 or HTTP/3 floor: each is up before
// the first post and carries the posts of many goroutines.
type multiplexed struct {
	trips []func(*http.Request) (*http.Response, error)
	ends  []func() error
}

// dial opens the connections of a floor.
func (f *Floor) dial(ctx context.Context) (*multiplexed, error) {
	target, err := url.Parse(f.Origins[0])
	if err != nil {
		return nil, err
	}
	roots, err := trust(f.CA)
	if err != nil {
		return nil, err
	}
	m := &multiplexed{}
	open := m.http2
	if f.Stack == HTTP3 {
		open = m.http3
	}
	for range max(1, f.Conns) {
		if err := open(ctx, target.Host, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}); err != nil {
			return nil, errors.Join(fmt.Errorf("floor: %s: %w", f.Stack, err), m.close())
		}
	}
	return m, nil
}

// http2 opens one http.ClientConn.
func (m *multiplexed) http2(ctx context.Context, address string, config *tls.Config) error {
	t := &http.Transport{TLSClientConfig: config, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP2(true)
	c, err := t.NewClientConn(ctx, "https", address)
	if err != nil {
		return err
	}
	m.trips, m.ends = append(m.trips, c.RoundTrip), append(m.ends, c.Close)
	return nil
}

// http3 opens one http3.ClientConn on a socket of its own.
func (m *multiplexed) http3(ctx context.Context, address string, config *tls.Config) error {
	config.NextProtos = []string{http3.NextProtoH3}
	c, err := quic.DialAddr(ctx, address, config, &quic.Config{})
	if err != nil {
		return err
	}
	t := &http3.Transport{DisableCompression: true}
	m.trips = append(m.trips, t.NewClientConn(c).RoundTrip)
	m.ends = append(m.ends, func() error { return c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "") })
	return nil
}

// trip is how goroutine i of the floor sends.
func (m *multiplexed) trip(i int) func(*http.Request) (*http.Response, error) {
	return m.trips[i%len(m.trips)]
}

func (m *multiplexed) close() error {
	var errs []error
	for _, end := range m.ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}
