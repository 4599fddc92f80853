package api

// descriptions say about operations what their summary has no room for.
var descriptions = map[string]string{
	"health":  "Never depends on the store: restart the process when it does not answer.",
	"ready":   "Send traffic to the node only while this answers 200; a node that is about to stop answers 503 first.",
	"openapi": "The same for every token.",
	"metrics": "Also served without a token at metrics_listen, when that is set.",
	"profile": "Profiles hold names of functions and counts, no data. Read one with go tool pprof.",

	"list-tokens":   "Their texts are not shown: the node does not keep them.",
	"create-token":  "The node keeps a hash of the token; a token that is lost is rotated or revoked.",
	"get-own-token": "Open to every token: a client can find out what it may do before it tries.",
	"get-token":     "The middle part of a token's text is its id.",
	"rotate-token":  "The present text stays valid for a while, so that clients can change over.",
	"revoke-token":  "Whoever uses it is refused from the next request on.",

	"list-tenants":  "In the order of their ids.",
	"put-tenant":    "The whole settings are replaced: what is left out gets its default.",
	"get-tenant":    "Its settings; its subscribers, sources and events have paths of their own.",
	"delete-tenant": "Attempts in flight end; what was accepted for it is not delivered any more.",

	"create-subscriber": "Its topics, order, limits, retry ladder and signing can be given; every field has a default but url.",
	"list-subscribers":  "In the order of their ids, without health: ask for one to see that.",
	"get-subscriber":    "Besides its settings: breaker, attempts in flight, and why nothing goes now.",
	"patch-subscriber":  "A JSON merge patch: fields that are left out keep their values, and lists are replaced whole.",
	"delete-subscriber": "Its dead letters go with it.",
	"pause-subscriber":  "Nothing is lost: deliveries are held until it is resumed, and expire as usual.",
	"resume-subscriber": "What was held goes at once, in its order.",
	"rotate-secret":     "Both secrets sign until the old one ends, so that a receiver can change over at any time between.",
	"test-subscriber":   "An event with the topic dispatcher.test and a small payload, signed like any other.",
	"replay-subscriber": "Those of a time window, under the same webhook-id; what is pending is left alone.",

	"put-source":    "The whole settings are replaced, but for secrets that are left out: those stay.",
	"get-source":    "What is secret is shown as ***.",
	"list-sources":  "In the order of their ids.",
	"delete-source": "Its provider gets 404 from then on.",

	"publish-event": "200 means that the same event was accepted before: the id is remembered for 4 days. " +
		"Anything but 200 and 202 means that nothing was stored.",
	"publish-batch": "The body has one event a line, and so has the answer: its line, id, and status as for a single event. " +
		"A line that is refused spoils no other.",
	"list-events":           "Without their payloads.",
	"get-event":             "Showing a payload is logged as an audit line.",
	"delete-event":          "Its deliveries stay in the lists, as canceled; the payload is gone.",
	"list-event-deliveries": "One for each subscriber that it went to.",

	"list-deliveries": "Filters are joined by and. Payloads are never in it.",
	"get-delivery":    "Every transition with its time, and every attempt with protocol, status, phases and the answer's first bytes.",
	"get-payload":     "An audit line says who asked. A browser neither shows nor runs what it gets.",
	"replay-delivery": "Receivers that remember webhook-ids recognise it. With force, a delivered one is sent again, too.",
	"group-dead":      "A group is one subscriber and one signature: reason and what the last attempt met.",
	"replay-dead":     "All that match, at most 100,000 a call: next_cursor goes on.",
	"list-replays":    "Those that run or wait are always among them.",
	"start-replay": "What is dead as the replay is made is replayed, each once; what dies again meanwhile stays dead. " +
		"Four replays run at a time, and others wait for them; 409 says that a hundred do already.",
	"get-replay":      "The counts are exact, after a crash, too: they are written with what they count.",
	"cancel-replay":   "The answer comes when it has ended. One that had ended before is answered as it is.",
	"purge-dead":      "They cannot be brought back.",
	"list-protocols":  "One row for each route: an origin, the TLS material and the address that it is reached from.",
	"get-protocol":    "Alternatives, how often each won its race, and what broke them.",
	"pin-protocol":    "Whatever the selector knows, deliveries to this origin go over that protocol until the pin ends.",
	"forget-protocol": "The next delivery begins as if the origin had never been met.",
	"probe-protocol":  "Handshakes alone: no request is sent.",
	"store-stats":     "Sizes, counts of records, what is free on the disk.",
	"store-backup":    "A checkpoint that shares its files with the store where the file system can; a node starts on it.",
	"store-compact":   "Takes a while, and input and output meanwhile.",
}

// examples are bodies that a node takes, as JSON.
var examples = map[string]string{
	"create-token":      `{"name":"checkout-service","scope":"publish","tenant":"acme","expires_in":"2160h"}`,
	"rotate-token":      `{"keep":"48h"}`,
	"put-tenant":        `{"name":"Acme","weight":2,"rate_limit":{"per_second":100,"burst":200},"max_in_flight":200,"reserved_in_flight":5}`,
	"create-subscriber": `{"id":"billing","url":"https://hooks.example.com/in","topics":["order.*","invoice.paid"],"ordering":"key","concurrency":16,"timeout":"10s","rate_limit":{"per_second":50},"headers":{"X-Team":"billing"},"signing":[{"scheme":"standard"}]}`,
	"patch-subscriber":  `{"topics":["order.*"],"retry":{"schedule":["5s","5m","1h"],"max_age":"24h"}}`,
	"rotate-secret":     `{"keep":"24h"}`,
	"replay-subscriber": `{"since":"2026-01-02T15:04:05Z","per_second":20,"limit":1000}`,
	"put-source":        `{"scheme":"github","secrets":["what GitHub was told"],"destination":{"type":"fanout"},"forward_headers":["X-GitHub-Event"]}`,
	"publish-event":     `{"id":"order-1-created","topic":"order.created","payload":{"order":1},"ordering_key":"order-1"}`,
	"publish-batch":     `{"id":"order-2-created","topic":"order.created","payload":{"order":2}}`,
	"replay-delivery":   `{"force":true}`,
	"replay-dead":       `{"tenant":"acme","subscriber":"billing","signature":"rejected: status 400","per_second":20}`,
	"start-replay":      `{"tenant":"acme","subscriber":"billing","signature":"rejected: status 400","per_second":20}`,
	"purge-dead":        `{"tenant":"acme","subscriber":"billing","until":"2026-01-02T15:04:05Z"}`,
	"pin-protocol":      `{"protocol":"tcp","ttl":"1h"}`,
	"store-backup":      `{"directory":"/var/backups/dispatcher/monday"}`,
}
