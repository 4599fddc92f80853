//go:build real

package realtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/doctor"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/storage"
	"github.com/dispatcher-engine/dispatcher/transport"
)

// suspect is the child that runs a node with the default policy and tries to
// make it send where it must not.
type suspect struct {
	brief
	ctx  context.Context //nolint:containedctx // of the whole child
	zone *zone
	node *engine.Engine

	mu       sync.Mutex
	failures []string
	dials    map[string]error // over QUIC that failed, by origin
	refused  map[string]int   // advertised alternatives that policy refused, by origin
}

const tenant = "t"

// runNode is the child's main: a brief in, an outcome out.
func runNode(in io.Reader, out io.Writer) {
	s := &suspect{dials: map[string]error{}, refused: map[string]int{}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.ctx = ctx
	if err := json.NewDecoder(in).Decode(&s.brief); err != nil {
		s.failf("brief: %v", err)
	} else if err := s.run(); err != nil {
		s.failf("%v", err)
	}
	_ = json.NewEncoder(out).Encode(outcome{Failures: s.failures}) // the parent misses it if it fails
}

func (s *suspect) failf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

func (s *suspect) run() (err error) {
	dir, err := os.MkdirTemp("", "dispatcher-leak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s.zone = zoneOf(s.brief)
	if s.node, err = engine.New(s.config(dir)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.node.Stop(context.WithoutCancel(s.ctx))) }()
	if err := s.node.Start(s.ctx); err != nil {
		return err
	}
	if _, _, err := s.node.PutTenant(s.ctx, tenant, engine.TenantInput{}); err != nil {
		return err
	}
	s.control()
	s.spellings()
	s.literals()
	s.names()
	s.rebinding()
	s.redirect()
	s.altSvc()
	s.httpsRecords()
	s.tools()
	return nil
}

// config is a node's: the policy is the default one, and everything else that
// could keep it from dialling is open.
func (s *suspect) config(dir string) engine.Config {
	return engine.Config{
		Guard:   netguard.Config{Resolver: s.zone.resolver()},
		Storage: storage.Config{Dir: dir, Watermark: storage.Watermark{Bytes: -1}},
		Selector: protoselect.Config{
			Alternatives: protoselect.AltPolicy{Hosts: []string{"*.example"}},
			DNS:          protoselect.DNSConfig{Servers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53")}, Dial: s.zone.dial},
			Observer: protoselect.Observer{
				Dialed: func(d protoselect.Dial) {
					s.mu.Lock()
					defer s.mu.Unlock()
					if d.QUIC && d.Err != nil {
						s.dials[d.Route.Origin.Host] = d.Err
					}
				},
				Refused: func(r protoselect.AlternativeRefused) {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.refused[r.Route.Origin.Host]++
				},
			},
		},
	}
}

// until waits for what another goroutine does.
func (s *suspect) until(what string, holds func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.failf("not in time: %s", what)
			return false
		}
	}
	return true
}

// subscribe registers a host for one topic, its own id.
func (s *suspect) subscribe(id, host, protocol string, ca []byte) bool {
	_, err := s.node.CreateSubscriber(s.ctx, tenant, engine.SubscriberInput{
		ID: &id, URL: new("https://" + host + "/hook"), Protocol: &protocol, Topics: &[]string{id}, TLS: &delivery.TLSMaterial{CAPEM: ca},
	})
	if err != nil {
		s.failf("register %s at %s: %v", id, host, err)
	}
	return err == nil
}

// send publishes for one subscriber and waits for its first attempt to end.
func (s *suspect) send(id string) *delivery.Attempt {
	r, err := s.node.Publish(s.ctx, tenant, engine.EventInput{Topic: id, Payload: []byte(`{}`)})
	if err != nil {
		s.failf("publish for %s: %v", id, err)
		return nil
	}
	var attempt *delivery.Attempt
	s.until("an attempt for "+id, func() bool {
		_, timeline, err := s.node.GetDelivery(s.ctx, delivery.ID{Event: r.Key, Subscriber: id}.String())
		if err != nil {
			return false
		}
		i := slices.IndexFunc(timeline, func(e delivery.TimelineEntry) bool { return e.Attempt != nil })
		if i >= 0 {
			attempt = timeline[i].Attempt
		}
		return i >= 0
	})
	return attempt
}

// wantDenied expects an attempt that policy ended.
func (s *suspect) wantDenied(id string, a *delivery.Attempt) {
	if a != nil && (a.Result.Cause != delivery.CausePolicy || a.Result.Sent != delivery.SentNever) {
		s.failf("%s: %v %v: %s", id, a.Result.Cause, a.Result.Sent, a.Result.Detail)
	}
}

// wantStatus expects an answer.
func (s *suspect) wantStatus(id string, a *delivery.Attempt, status int) {
	if a != nil && a.Result.Status != status {
		s.failf("%s: status %d, want %d: %s", id, a.Result.Status, status, a.Result.Detail)
	}
}

// control proves that the node can send from here at all.
func (s *suspect) control() {
	for _, protocol := range []string{"h2", "h3"} {
		if id := "control-" + protocol; s.subscribe(id, controlHost, protocol, s.CA) {
			s.wantStatus(id, s.send(id), 200)
		}
	}
	if s.subscribe("control-six", sixHost, "auto", s.CA) {
		s.wantStatus("control-six", s.send("control-six"), 200)
	}
}

// spellings are refused when they are registered.
func (s *suspect) spellings() {
	hosts := []string{
		"127.1", "127.0.1", "0x7f000001", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "017700000001", "127.0.0.1.", "10.66051",
		"１２７.0.0.1", "127。0。0。1", "%31%32%37.0.0.1", "localhost", "LOCALHOST.", "a.localhost", "[::ffff:7f00:1]",
		"[0:0:0:0:0:ffff:a9fe:a9fe]", "[::127.0.0.1]", "[fe80::1%25node]", "u:p@10.1.2.3", "hook.example@10.1.2.3",
		"hook.example\\@10.1.2.3", "10.1.2.3#hook.example", "inside", "0", "0x0",
	}
	for _, addr := range s.Denied {
		host := addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
		hosts = append(hosts, host, host+":8443")
	}
	for _, host := range hosts {
		_, err := s.node.CreateSubscriber(s.ctx, tenant, engine.SubscriberInput{URL: new("https://" + host + "/hook")})
		if _, ok := errors.AsType[*engine.InvalidError](err); !ok {
			s.failf("https://%s/ was registered: %v", host, err)
		}
	}
}

// literals go past registration: a URL that was stored under another policy.
func (s *suspect) literals() {
	guard, err := netguard.New(netguard.Config{Resolver: s.zone.resolver()})
	if err != nil {
		s.failf("guard: %v", err)
		return
	}
	tr, err := transport.New(transport.Config{Guard: guard})
	if err != nil {
		s.failf("transport: %v", err)
		return
	}
	defer func() { _ = tr.Close(context.WithoutCancel(s.ctx)) }()
	hosts := []string{"127.1", "0x7f000001", "2130706433", "0177.0.0.1", "localhost", "inside", "fe80::1%node"}
	for _, addr := range s.Denied {
		hosts = append(hosts, addr.String())
	}
	for _, host := range hosts {
		for _, scheme := range []string{"https", "http"} {
			ep := delivery.Endpoint{Route: delivery.Route{Origin: delivery.Origin{Scheme: scheme, Host: host, Port: 443}}}
			_, err := tr.DialTCP(s.ctx, ep, transport.TCPOptions{})
			s.wantLiteral(scheme+"://"+host, err)
		}
		ep := delivery.Endpoint{Route: delivery.Route{Origin: delivery.Origin{Scheme: "https", Host: controlHost, Port: 443}}}
		_, err := tr.DialQUIC(s.ctx, ep, delivery.Alternative{Host: host, Port: 443})
		s.wantLiteral("h3 at "+host, err)
		if addr, err := netip.ParseAddr(host); err == nil {
			if got := tr.Inspect(s.ctx, ep, netip.AddrPortFrom(addr, 443), false); got.Err == nil || got.Err.Cause != delivery.CausePolicy {
				s.failf("inspect %s over TCP: %v", host, got.Err)
			}
			if got := tr.Inspect(s.ctx, ep, netip.AddrPortFrom(addr, 443), true); got.Err == nil || got.Err.Cause != delivery.CausePolicy {
				s.failf("inspect %s over QUIC: %v", host, got.Err)
			}
		}
	}
}

func (s *suspect) wantLiteral(what string, err error) {
	se, ok := errors.AsType[*delivery.SendError](err)
	if !ok || se.Cause != delivery.CausePolicyLiteral || se.Sent != delivery.SentNever {
		s.failf("%s: %v", what, err)
	}
}

// names resolve to denied addresses, alone or beside one that is allowed.
func (s *suspect) names() {
	hosts := map[string]string{"inside": insideHost, "mapped": "mapped.example", "mixed": "mixed.example"}
	for i := range s.Denied {
		hosts[fmt.Sprintf("deny-%d", i)] = deniedName(i)
	}
	var all sync.WaitGroup
	for id, host := range hosts {
		for _, protocol := range []string{"h1", "h2", "h3", "auto"} {
			id := id + "-" + protocol
			if s.subscribe(id, host, protocol, s.CA) {
				all.Go(func() { s.wantDenied(id, s.send(id)) })
			}
		}
	}
	all.Wait()
}

// rebinding: the name's second answer is another one. A second TLS identity
// shares no connection, so that it has to look the name up again.
func (s *suspect) rebinding() {
	if s.subscribe("rebind-1", rebindHost, "h2", s.CA) {
		s.wantStatus("rebind-1", s.send("rebind-1"), 200)
	}
	if s.subscribe("rebind-2", rebindHost, "h2", append(slices.Clone(s.CA), '\n')) {
		s.wantDenied("rebind-2", s.send("rebind-2"))
	}
}

func (s *suspect) redirect() {
	for _, protocol := range []string{"h1", "h2", "h3"} {
		if id := "redirect-" + protocol; s.subscribe(id, redirectHost, protocol, s.CA) {
			s.wantStatus(id, s.send(id), 302)
		}
	}
}

// altSvc: receivers that advertise denied alternatives. The first delivery
// learns, the next one has the alternative tried.
func (s *suspect) altSvc() {
	for host := range advertised {
		id := strings.TrimSuffix(host, ".example")
		if !s.subscribe(id, host, "auto", s.CA) {
			continue
		}
		s.wantStatus(id, s.send(id), 200)
		s.wantStatus(id, s.send(id), 200)
		literal := strings.Contains(advertised[host], "[::1]")
		s.until("the alternatives of "+host+" are judged", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if literal {
				return s.refused[host] >= 2
			}
			return s.dials[host] != nil
		})
		if !literal {
			s.wantPolicy(host)
		}
	}
}

// wantPolicy expects that policy ended the last QUIC dial for an origin.
func (s *suspect) wantPolicy(host string) {
	s.mu.Lock()
	err := s.dials[host]
	s.mu.Unlock()
	if se, ok := errors.AsType[*delivery.SendError](err); !ok || se.Cause != delivery.CausePolicy {
		s.failf("HTTP/3 of %s: %v", host, err)
	}
}

// httpsRecords: hints to denied addresses, and a target that resolves to one.
func (s *suspect) httpsRecords() {
	for _, host := range []string{hintHost, targetHost} {
		id := strings.TrimSuffix(host, ".example")
		if s.subscribe(id, host, "auto", s.CA) {
			s.wantStatus(id, s.send(id), 200)
			s.wantStatus(id, s.send(id), 200)
		}
	}
	if s.until("the target of the HTTPS record is judged", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.dials[targetHost] != nil
	}) {
		s.wantPolicy(targetHost)
	}
}

// tools dial, too.
func (s *suspect) tools() {
	for _, host := range []string{insideHost, "mixed.example", "mapped.example", "10.1.2.3", "[::1]"} {
		report, err := doctor.Examine(s.ctx, doctor.Config{
			URL: "https://" + host + "/hook", Guard: netguard.Config{Resolver: s.zone.resolver()},
			Selector: protoselect.Config{DNS: protoselect.DNSConfig{Disabled: true}},
		})
		if err != nil || report.Works {
			s.failf("doctor %s: works %v, %v", host, report.Works, err)
		}
		probe, err := s.node.ProbeProtocol(s.ctx, strings.Trim(host, "[]"))
		if err == nil && (probe.TCP.Verdict == protoselect.VerdictUp || slices.ContainsFunc(probe.HTTP3, func(d protoselect.ProbeDial) bool {
			return d.Verdict == protoselect.VerdictUp
		})) {
			s.failf("probe %s: %+v", host, probe)
		}
	}
}

// runReckless sends to every denied address without asking anybody.
func runReckless(in io.Reader, out io.Writer) {
	var b brief
	said := outcome{Refused: map[netip.Addr]string{}}
	if err := json.NewDecoder(in).Decode(&b); err != nil {
		said.Failures = append(said.Failures, err.Error())
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, addr := range b.Denied {
		all.Go(func() {
			tcp, udp := tryTCP(addr), tryUDP(addr)
			if tcp != nil && udp != nil {
				mu.Lock()
				defer mu.Unlock()
				said.Refused[addr] = errors.Join(tcp, udp).Error()
			}
		})
	}
	all.Wait()
	_ = json.NewEncoder(out).Encode(said) // the parent misses it if it fails
}

// tryTCP returns an error if the kernel would not even try.
func tryTCP(addr netip.Addr) error {
	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, 443).String(), 200*time.Millisecond)
	if err == nil {
		_ = conn.Close()
		return nil
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	return err
}

func tryUDP(addr netip.Addr) error {
	network := "udp4"
	if addr.Unmap().Is6() {
		network = "udp6"
	}
	conn, err := net.ListenUDP(network, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.WriteToUDPAddrPort([]byte("reckless"), netip.AddrPortFrom(addr.Unmap(), 443))
	return err
}
