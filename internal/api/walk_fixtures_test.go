package api

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"runtime/pprof"
	"testing"
	"time"
)

// fixtures say for every operation how to ask it well, and whatever else the
// document promises and its form does not tell, such as conflicts. They return a
// request that is good but for what is spoilt in it next. An operation without
// one fails the walk.
var fixtures = map[string]func(*walk) asked{
	"health": func(w *walk) asked {
		w.ask("health", asked{status: 200, query: "anything=goes"})
		return asked{}
	},
	"ready": func(w *walk) asked {
		w.ask("ready", asked{status: 200})
		return asked{}
	},
	"openapi": func(w *walk) asked { return w.good("openapi", asked{status: 200}) },
	"metrics": func(w *walk) asked { return w.good("metrics", asked{status: 200}) },
	"profile": func(w *walk) asked {
		w.ask("profile", asked{status: 200, path: map[string]string{"name": "profile"}, query: "seconds=1"})
		if err := pprof.StartCPUProfile(nowhere{}); err != nil {
			w.t.Fatal(err)
		}
		w.ask("profile", asked{status: 409, path: map[string]string{"name": "profile"}, query: "seconds=1"})
		pprof.StopCPUProfile()
		w.ask("profile", asked{status: 422, path: map[string]string{"name": "profile"}, query: "seconds=121"})
		w.ask("profile", asked{status: 200, path: map[string]string{"name": "heap"}})
		return asked{path: map[string]string{"name": "profile"}}
	},

	"list-tokens":   func(w *walk) asked { return w.good("list-tokens", asked{status: 200}) },
	"get-own-token": func(w *walk) asked { return w.good("get-own-token", asked{status: 200}) },
	"create-token": func(w *walk) asked {
		return w.good("create-token", asked{status: 201, body: map[string]any{"tenant": w.tenant()}})
	},
	"get-token": func(w *walk) asked { return w.good("get-token", asked{status: 200, path: w.token()}) },
	"rotate-token": func(w *walk) asked {
		return w.good("rotate-token", asked{status: 200, path: w.token()})
	},
	"revoke-token": func(w *walk) asked { return w.good("revoke-token", asked{status: 204, path: w.token()}) },

	"list-tenants": func(w *walk) asked {
		w.tenant()
		w.ask("list-tenants", asked{status: 200, token: "read"})
		return w.good("list-tenants", asked{status: 200, query: "limit=1"})
	},
	"get-tenant": func(w *walk) asked { return w.good("get-tenant", asked{status: 200, path: w.inTenant()}) },
	"put-tenant": func(w *walk) asked {
		path := map[string]string{"tenant": w.name()}
		w.ask("put-tenant", asked{status: 201, path: path})
		return w.good("put-tenant", asked{status: 200, path: path})
	},
	"delete-tenant": func(w *walk) asked { return w.good("delete-tenant", asked{status: 204, path: w.inTenant()}) },

	"create-subscriber": func(w *walk) asked {
		in := asked{status: 201, path: w.inTenant(), body: map[string]any{"url": w.takes.URL("", "/in")}}
		w.ask("create-subscriber", in)
		in.status = 409
		w.ask("create-subscriber", in)
		in.status, in.body["id"] = 201, "another"
		return w.good("create-subscriber", in)
	},
	"list-subscribers": func(w *walk) asked {
		return w.good("list-subscribers", asked{status: 200, path: map[string]string{"tenant": w.subscriber(w.takes.URL("", "/"))["tenant"]}})
	},
	"get-subscriber": func(w *walk) asked {
		return w.good("get-subscriber", asked{status: 200, path: w.subscriber(w.takes.URL("", "/"))})
	},
	"patch-subscriber": func(w *walk) asked {
		w.ask("patch-subscriber", asked{status: 409, path: w.originSubscriber()})
		return w.good("patch-subscriber", asked{status: 200, path: w.subscriber(w.takes.URL("", "/"))})
	},
	"delete-subscriber": func(w *walk) asked {
		w.ask("delete-subscriber", asked{status: 409, path: w.originSubscriber()})
		return w.good("delete-subscriber", asked{status: 204, path: w.subscriber(w.takes.URL("", "/"))})
	},
	"pause-subscriber": func(w *walk) asked {
		return w.good("pause-subscriber", asked{status: 200, path: w.subscriber(w.takes.URL("", "/"))})
	},
	"resume-subscriber": func(w *walk) asked {
		return w.good("resume-subscriber", asked{status: 200, path: w.subscriber(w.takes.URL("", "/"))})
	},
	"rotate-secret": func(w *walk) asked {
		w.ask("rotate-secret", asked{status: 409, path: w.originSubscriber()})
		return w.good("rotate-secret", asked{status: 200, path: w.subscriber(w.takes.URL("", "/"))})
	},
	"test-subscriber": func(w *walk) asked {
		return w.good("test-subscriber", asked{status: 202, path: w.subscriber(w.takes.URL("", "/"))})
	},
	"replay-subscriber": func(w *walk) asked {
		letter := w.dead()
		return w.good("replay-subscriber", asked{status: 202, path: map[string]string{"tenant": letter.str("tenant"), "id": letter.str("subscriber")}})
	},

	"put-source": func(w *walk) asked {
		path := w.source()
		return w.good("put-source", asked{status: 200, path: path})
	},
	"get-source": func(w *walk) asked { return w.good("get-source", asked{status: 200, path: w.source()}) },
	"list-sources": func(w *walk) asked {
		return w.good("list-sources", asked{status: 200, path: map[string]string{"tenant": w.source()["tenant"]}})
	},
	"delete-source": func(w *walk) asked { return w.good("delete-source", asked{status: 204, path: w.source()}) },

	"publish-event": func(w *walk) asked {
		in := asked{status: 202, path: map[string]string{"tenant": w.subscriber(w.takes.URL("", "/"))["tenant"]}}
		w.ask("publish-event", in)
		in.status = 200
		w.ask("publish-event", in)
		w.ask("publish-event", asked{status: 409, path: in.path, body: map[string]any{"payload": "other"}})
		return w.good("publish-event", in)
	},
	"publish-batch": func(w *walk) asked {
		lines := `{"topic":"a.b","payload":1}` + "\n" + `{"topic":"a.b"}` + "\n" + `{"topic":7}` + "\n" + `{"topic":"a b","payload":1}` + "\n"
		w.ask("publish-batch", asked{status: 200, path: w.inTenant(), text: &lines})
		return w.good("publish-batch", asked{status: 200, path: w.inTenant()})
	},
	"list-events": func(w *walk) asked {
		return w.good("list-events", asked{status: 200, path: map[string]string{"tenant": w.delivered().str("tenant")}})
	},
	"get-event": func(w *walk) asked {
		return w.good("get-event", asked{status: 200, path: w.event(w.delivered())})
	},
	"delete-event": func(w *walk) asked {
		return w.good("delete-event", asked{status: 204, path: w.event(w.delivered())})
	},
	"list-event-deliveries": func(w *walk) asked {
		return w.good("list-event-deliveries", asked{status: 200, path: w.event(w.delivered())})
	},

	"list-deliveries": func(w *walk) asked {
		w.ask("list-deliveries", asked{status: 200, query: "state=dead&tenant=" + w.dead().str("tenant")})
		w.ask("list-deliveries", asked{status: 404, query: "tenant=absent"})
		return w.good("list-deliveries", asked{status: 200, query: "limit=1"})
	},
	"get-delivery": func(w *walk) asked {
		w.ask("get-delivery", asked{status: 200, path: map[string]string{"id": w.dead().str("id")}})
		return w.good("get-delivery", asked{status: 200, path: map[string]string{"id": w.delivered().str("id")}})
	},
	"get-payload": func(w *walk) asked {
		return w.good("get-payload", asked{status: 200, path: map[string]string{"id": w.delivered().str("id")}})
	},
	"replay-delivery": func(w *walk) asked {
		done := map[string]string{"id": w.delivered().str("id")}
		w.ask("replay-delivery", asked{status: 409, path: done, body: map[string]any{"force": false}})
		w.ask("replay-delivery", asked{status: 202, path: done})
		empty := ""
		w.ask("replay-delivery", asked{status: 202, path: map[string]string{"id": w.dead().str("id")}, text: &empty})
		return asked{path: done}
	},
	"group-dead": func(w *walk) asked {
		w.ask("group-dead", asked{status: 404, query: "tenant=absent"})
		return w.good("group-dead", asked{status: 200, query: "tenant=" + w.dead().str("tenant")})
	},
	"replay-dead": func(w *walk) asked {
		letter := w.dead()
		w.ask("replay-dead", asked{status: 404, body: map[string]any{"tenant": "absent"}})
		w.ask("replay-dead", asked{status: 422, body: map[string]any{"tenant": ""}})
		return w.good("replay-dead", asked{status: 202, body: map[string]any{"tenant": letter.str("tenant"), "subscriber": letter.str("subscriber")}})
	},
	"purge-dead": func(w *walk) asked {
		letter := w.dead()
		w.ask("purge-dead", asked{status: 404, body: map[string]any{"tenant": "absent"}})
		return w.good("purge-dead", asked{status: 200, body: map[string]any{"tenant": letter.str("tenant"), "subscriber": letter.str("subscriber")}})
	},

	"start-replay": func(w *walk) asked {
		letter := w.dead()
		w.ask("start-replay", asked{status: 404, body: map[string]any{"tenant": "absent"}})
		w.ask("start-replay", asked{status: 422, body: map[string]any{"tenant": ""}})
		return w.good("start-replay", asked{status: 202, body: map[string]any{"tenant": letter.str("tenant"), "subscriber": letter.str("subscriber")}})
	},
	"list-replays": func(w *walk) asked {
		w.ask("list-replays", asked{status: 404, query: "tenant=absent"})
		return w.good("list-replays", asked{status: 200, query: "tenant=" + w.replay()["tenant"]})
	},
	"get-replay":    func(w *walk) asked { return w.good("get-replay", asked{status: 200, path: w.replay()}) },
	"cancel-replay": func(w *walk) asked { return w.good("cancel-replay", asked{status: 200, path: w.replay()}) },

	"list-protocols": func(w *walk) asked {
		w.delivered()
		return w.good("list-protocols", asked{status: 200})
	},
	"get-protocol": func(w *walk) asked { return w.good("get-protocol", asked{status: 200, path: w.origin()}) },
	"pin-protocol": func(w *walk) asked { return w.good("pin-protocol", asked{status: 200, path: w.origin()}) },
	"forget-protocol": func(w *walk) asked {
		return w.good("forget-protocol", asked{status: 204, path: w.origin()})
	},
	"probe-protocol": func(w *walk) asked { return w.good("probe-protocol", asked{status: 200, path: w.origin()}) },

	"store-stats":   func(w *walk) asked { return w.good("store-stats", asked{status: 200}) },
	"store-compact": func(w *walk) asked { return w.good("store-compact", asked{status: 204}) },
	"store-backup": func(w *walk) asked {
		in := asked{status: 204, body: map[string]any{"directory": filepath.Join(w.t.TempDir(), "copy")}}
		w.ask("store-backup", in)
		in.status = 409
		w.ask("store-backup", in)
		return in
	},
}

// refusals are requests whose form is good and whose content is not: the field is
// the one that the problem has to name.
var refusals = map[string][]struct {
	field string
	body  map[string]any
	query string
}{
	"create-token": {
		{field: "tenant", body: map[string]any{"scope": "publish", "tenant": ""}},
		{field: "tenant", body: map[string]any{"scope": "admin", "tenant": "acme"}},
		{field: "tenant", body: map[string]any{"scope": "read", "tenant": "absent"}},
		{field: "expires_in", body: map[string]any{"scope": "read", "tenant": "", "expires_in": "soon"}},
	},
	"rotate-token": {{field: "keep", body: map[string]any{"keep": "99999h"}}},
	"put-tenant": {
		{field: "rate_limit.per_second", body: map[string]any{"rate_limit": map[string]any{"per_second": 1e9}}},
		{field: "max_in_flight", body: map[string]any{"max_in_flight": 1 << 40}},
	},
	"create-subscriber": {
		{field: "id", body: map[string]any{"id": "not an id"}},
		{field: "url", body: map[string]any{"url": "ftp://a.example/"}},
		{field: "url", body: map[string]any{"url": "https://169.254.169.254/"}},
		{field: "topics", body: map[string]any{"topics": []string{}}},
		{field: "topics[1]", body: map[string]any{"topics": []string{"*", "a..b"}}},
		{field: "headers.Host", body: map[string]any{"headers": map[string]string{"Host": "x"}}},
		{field: "signing", body: map[string]any{"signing": []any{}}},
		{field: "secret", body: map[string]any{"signing": []any{map[string]any{"scheme": "standard", "secret": "short"}}}},
		{field: "concurrency", body: map[string]any{"concurrency": 0}},
		{field: "timeout", body: map[string]any{"timeout": "1ms"}},
		{field: "disable_after", body: map[string]any{"disable_after": "1ns"}},
		{field: "give_up_after", body: map[string]any{"give_up_after": -1}},
		{field: "retry", body: map[string]any{"retry": map[string]any{"schedule": []string{"1s"}, "base": "1s"}}},
		{field: "retry.factor", body: map[string]any{"retry": map[string]any{"base": "1s", "factor": 1e6}}},
		{field: "tls.ca_pem", body: map[string]any{"tls": map[string]any{"ca_pem": "no certificate"}}},
	},
	"patch-subscriber": {{field: "id", body: map[string]any{"id": "another"}}},
	"rotate-secret":    {{field: "scheme", body: map[string]any{"scheme": "github"}}},
	"put-source": {
		{field: "destination.url", body: map[string]any{"destination": map[string]any{"type": "origin"}}},
		{field: "tolerance", body: map[string]any{"tolerance": "soon"}},
		{field: "allow_ips", body: map[string]any{"allow_ips": []string{"here"}}},
		{field: "forward_headers", body: map[string]any{"forward_headers": []string{"not a header"}}},
	},
	"publish-event": {
		{field: "topic", body: map[string]any{"id": "n1", "topic": "a b"}},
		{field: "topic", body: map[string]any{"id": "n2", "topic": "dispatcher.own"}},
		{field: "content_type", body: map[string]any{"id": "n3", "content_type": "no type"}},
		{field: "deliver_at", body: map[string]any{"id": "n4", "deliver_at": "2999-01-02T15:04:05Z"}},
		{field: "subscribers[0]", body: map[string]any{"id": "n5", "subscribers": []string{"absent"}}},
		{field: "payload", body: map[string]any{"id": "n6", "payload_base64": "AA=="}},
	},
	"list-deliveries": {
		{field: "reason", query: "reason=none-such"},
		{field: "topic", query: "topic=a..b"},
		{field: "tenant", query: "subscriber=s"},
		{field: "signature", query: "state=delivered&signature=x"},
		{field: "cursor", query: "cursor=none-such"},
	},
	"list-events":  {{field: "cursor", query: "cursor=none-such"}},
	"group-dead":   {{field: "reason", query: "reason=none-such"}},
	"replay-dead":  {{field: "cursor", body: map[string]any{"cursor": "none-such"}}},
	"start-replay": {{field: "reason", body: map[string]any{"reason": "none-such"}}, {field: "per_second", body: map[string]any{"per_second": 100_001}}},
	"purge-dead":   {{field: "topic", body: map[string]any{"topic": "a..b"}}},
	"store-backup": {{field: "directory", body: map[string]any{"directory": "relative"}}},
}

// nowhere is where a profile goes that nobody reads.
type nowhere struct{}

// Write implements io.Writer.
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// good asks, and returns what was asked to be spoilt.
func (w *walk) good(id string, a asked) asked {
	w.t.Helper()
	w.ask(id, a)
	return a
}

// name returns an id that nothing has yet.
func (w *walk) name() string {
	w.made++
	return fmt.Sprintf("made-%d", w.made)
}

func (w *walk) tenant() string {
	w.t.Helper()
	id := w.name()
	w.ask("put-tenant", asked{status: 201, path: map[string]string{"tenant": id}})
	return id
}

func (w *walk) inTenant() map[string]string { return map[string]string{"tenant": w.tenant()} }

func (w *walk) token() map[string]string {
	w.t.Helper()
	return map[string]string{"id": w.ask("create-token", asked{status: 201, body: map[string]any{"tenant": w.tenant()}}).str("id")}
}

func (w *walk) subscriber(to string) map[string]string {
	w.t.Helper()
	path := w.inTenant()
	w.ask("create-subscriber", asked{status: 201, path: path, body: map[string]any{
		"url": to, "id": "s", "topics": []string{"*"}, "tls": map[string]any{"ca_pem": string(w.ca.PEM())},
	}})
	return map[string]string{"tenant": path["tenant"], "id": "s"}
}

func (w *walk) source() map[string]string {
	w.t.Helper()
	path := map[string]string{"tenant": w.tenant(), "source": "github"}
	w.ask("put-source", asked{status: 201, path: path})
	return path
}

// originSubscriber is one that its source alone may change.
func (w *walk) originSubscriber() map[string]string {
	w.t.Helper()
	tenant := w.tenant()
	source := w.ask("put-source", asked{status: 201, path: map[string]string{"tenant": tenant, "source": "github"}, body: map[string]any{
		"destination": map[string]any{"type": "origin", "url": w.takes.URL("", "/in")},
	}})
	return map[string]string{"tenant": tenant, "id": source.str("subscriber")}
}

func (w *walk) origin() map[string]string {
	w.t.Helper()
	w.delivered()
	return map[string]string{"origin": w.takes.Addr()}
}

func (w *walk) delivered() answer {
	w.t.Helper()
	return w.delivery(w.takes.URL("", "/in"), "delivered")
}
func (w *walk) dead() answer { w.t.Helper(); return w.delivery(w.rejects.URL("", "/in"), "dead") }

// replay makes one of a single dead letter.
func (w *walk) replay() map[string]string {
	w.t.Helper()
	tenant := w.dead().str("tenant")
	made := w.ask("start-replay", asked{status: 202, body: map[string]any{"tenant": tenant, "subscriber": "s", "signature": "rejected: status 400"}})
	return map[string]string{"tenant": tenant, "id": made.str("id")}
}

func (w *walk) event(delivery answer) map[string]string {
	return map[string]string{"tenant": delivery.str("tenant"), "id": delivery.str("event_id")}
}

// delivery publishes an event to a subscriber of its own and waits until its
// delivery is in a state.
func (w *walk) delivery(to, state string) answer {
	w.t.Helper()
	tenant := w.subscriber(to)["tenant"]
	id := w.name()
	w.ask("publish-event", asked{status: 202, path: map[string]string{"tenant": tenant}, body: map[string]any{"id": id}})
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		page := w.ask("list-event-deliveries", asked{status: 200, path: map[string]string{"tenant": tenant, "id": id}})
		rows, _ := page.fields["data"].([]any)
		if len(rows) == 1 && at(rows[0], "state") == state {
			return answer{status: http.StatusOK, fields: rows[0].(map[string]any)}
		}
		select {
		case <-deadline:
			w.t.Fatalf("the delivery does not become %s: %s", state, page.body)
		case <-tick.C:
		}
	}
}

// TestEveryOperationAnswersAsTheDocumentSays asks every operation of the document
// of a real node: well, as its fixture says, and badly in every way that its form
// allows. Every answer has to be documented, and what is documented has to be
// answered.
func TestEveryOperationAnswersAsTheDocumentSays(t *testing.T) {
	w := startWalk(t)
	for id := range fixtures {
		if _, ok := w.ops[id]; !ok {
			t.Errorf("a fixture for %s, which is no operation of the document", id)
		}
	}
	for id, op := range w.ops {
		fixture := fixtures[id]
		if fixture == nil {
			t.Errorf("%s (%s %s) has no fixture: add one to the table", id, op.Method, op.Path)
			continue
		}
		t.Run(id, func(t *testing.T) {
			w.t = t
			good := fixture(w)
			w.spoil(op, good)
			for _, r := range refusals[id] {
				w.refuse(op, with(good, func(a *asked) {
					a.status, a.query = 0, r.query
					if a.body == nil {
						a.body = map[string]any{}
					}
					maps.Copy(a.body, r.body)
				}), r.field, http.StatusUnprocessableEntity)
			}
		})
	}
	w.t = t
	w.server.Drain()
	w.ask("ready", asked{status: 503})
	w.complete()
}
