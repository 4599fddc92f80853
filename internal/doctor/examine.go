package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// examination is one run. The report belongs to the goroutine of Examine; what
// runs beside it fills in places of its own.
type examination struct {
	config    Config
	guard     *netguard.Guard
	transport *transport.Transport
	selector  *protoselect.Selector
	target    netguard.Target
	endpoint  delivery.Endpoint
	report    Report

	mu      sync.Mutex
	refused []protoselect.AlternativeRefused
}

// errTimeout is the cause of the examination's own deadline.
var errTimeout = errors.New("the examination's time is up")

// Examine looks at a URL. What is wrong with the URL or the receiver stands in
// the report. The error is a *ConfigError, or says that ctx ended before all was
// looked at.
func Examine(ctx context.Context, config Config) (Report, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return Report{}, &ConfigError{err}
	}
	e := &examination{config: config, report: Report{Problems: []Problem{}, Addresses: []Address{}, Services: []Service{}}}
	if err := e.prepare(); err != nil {
		return Report{}, &ConfigError{err}
	}
	started := time.Now()
	bounded, cancel := context.WithTimeoutCause(ctx, config.Timeout, errTimeout)
	defer cancel()
	e.run(bounded)
	e.report.TookMS = millis(time.Since(started))
	e.report.sort()
	if err := e.close(); err != nil {
		return e.report, fmt.Errorf("doctor: %w", err)
	}
	if ctx.Err() != nil {
		return e.report, fmt.Errorf("doctor: interrupted: %w", context.Cause(ctx))
	}
	return e.report, nil
}

func (e *examination) prepare() error {
	var err error
	if e.guard, err = netguard.New(e.config.Guard); err != nil {
		return err
	}
	t := e.config.Transport
	t.Guard = e.guard
	if e.transport, err = transport.New(t); err != nil {
		return err
	}
	s := e.config.Selector
	s.Observer.Refused = func(r protoselect.AlternativeRefused) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.refused = append(e.refused, r)
	}
	e.selector, err = protoselect.New(s, engine.Dialer(e.transport))
	return err
}

// close ends connections. They are idle, so this waits for nobody.
func (e *examination) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(e.selector.Stop(ctx), e.transport.Close(ctx))
}

func (e *examination) run(ctx context.Context) {
	if !e.parse() || !e.resolve(ctx) {
		return
	}
	e.inspect(ctx)
	if e.config.Post != nil {
		e.post(ctx)
	}
	if e.target.URL.Scheme == "https" {
		e.http3(ctx)
	}
	e.report.Works = e.works()
	if errors.Is(context.Cause(ctx), errTimeout) {
		e.report.add(Problem{
			Severity: SeverityWarning, Code: "timeout", About: []string{"doctor"},
			What: fmt.Sprintf("not everything was looked at within %v", e.config.Timeout), Mend: "give it more time with --timeout",
		})
	}
}

// parse reads the URL as a registration would.
func (e *examination) parse() bool {
	target, err := e.guard.ParseTarget(e.config.URL)
	if err != nil {
		p := Problem{Severity: SeverityError, Code: "url", About: []string{"url"}, What: "not a URL", Mend: "write it as https://host/path"}
		if fe, ok := errors.AsType[*netguard.FieldError](err); ok {
			p.Code, p.Mend = string(fe.Rule), fe.Hint
			p.What = fmt.Sprintf("%s is refused by rule %s", fe.Value, fe.Rule)
		}
		e.report.add(p)
		return false
	}
	e.target = target
	e.report.Origin = target.Origin()
	origin := delivery.Origin{Scheme: target.URL.Scheme, Host: target.Host, Port: target.Port}
	e.endpoint = delivery.Endpoint{Route: delivery.Route{Origin: origin}}
	if e.config.TLS != nil {
		e.endpoint.TLS = e.config.TLS
		e.endpoint.Route.Identity = delivery.Identity{1} // the only one here
	}
	return true
}

// works sums up: with a POST its outcome, else whether a handshake that a
// delivery would use succeeded.
func (e *examination) works() bool {
	if e.report.Post != nil {
		return e.report.Post.Outcome == delivery.ClassDelivered.String()
	}
	if e.config.Post != nil {
		return false // it could not even be made
	}
	for _, a := range e.report.Addresses {
		if a.TCP != nil && a.TCP.Up {
			return true
		}
	}
	for _, s := range e.report.Services {
		if s.Up && s.Source != protoselect.SourceAssumed.String() {
			return true
		}
	}
	return false
}

// each calls f for every address, all at the same time.
func (e *examination) each(f func(a *Address, to netip.AddrPort)) {
	var wg sync.WaitGroup
	for i := range e.report.Addresses {
		if i == maxAddresses {
			break
		}
		a := &e.report.Addresses[i]
		wg.Go(func() { f(a, netip.AddrPortFrom(a.Address, e.target.Port)) })
	}
	wg.Wait()
}
