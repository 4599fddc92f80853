package fault

import "github.com/dispatcher-engine/dispatcher/delivery"

// sizeParam and its like are numbers with a default.
func numberParam(name, doc, def string) Param { return Param{Name: name, Doc: doc, Default: def} }

func intervalParam(def string) Param {
	return Param{Name: "interval", Doc: "between two bytes", Default: def, form: formDuration}
}

// answerKinds are answers that would drown, starve or cheat their reader.
func answerKinds() []Kind {
	return []Kind{
		{
			Name: "1xx-storm", Doc: "informational answers before the real one", Protocols: all,
			Params: []Param{numberParam("count", "how many", "100"), numberParam("status", "of each", "103")},
			act:    actStorm,
			Cases: []Case{
				{Params: "count=1,status=100", Want: answered.fate(FateKeep)},
				{Params: "count=3", Want: answered.fate(FateKeep)},
				{Params: "count=100", Want: ambiguous(1, FateAny, 0)},
			},
		},
		{
			Name: "header-flood", Doc: "many header fields", Protocols: all,
			Params: []Param{numberParam("count", "how many", "5000"), numberParam("size", "bytes of each value", "32")},
			act:    actHeaderFlood,
			Cases: []Case{
				{Params: "count=50", Want: answered.fate(FateKeep)},
				{Want: ambiguous(1, FateAny, 0)},
			},
		},
		{
			Name: "huge-header", Doc: "one huge header field", Protocols: all,
			Params: []Param{numberParam("size", "bytes of its value", "1048576")},
			act:    actHugeHeader,
			Cases: []Case{
				{Params: "size=8192", Want: answered.fate(FateKeep)},
				{Want: ambiguous(1, FateAny, 0)},
			},
		},
		{
			Name: "drip-headers", Doc: "the answer's head comes a byte at a time", Protocols: all,
			Params: []Param{intervalParam("1s")}, act: actDripHeaders,
			Cases: []Case{
				{Params: "interval=1ms", Want: answered.fate(FateKeep)},
				{Params: "interval=2s", Want: ambiguous(1, FateAny, 0).atDeadline()},
			},
		},
		{
			Name: "drip-body", Doc: "the answer's body comes a byte at a time, without end", Protocols: all,
			Params: []Param{intervalParam("1s")}, act: actDripBody,
			Cases: []Case{
				{On: h1only, Params: "interval=50ms", Want: answered.cut().fate(FateGone).atDeadline()},
				{On: muxed, Params: "interval=50ms", Want: answered.cut().atDeadline()},
			},
		},
		{
			Name: "endless-body", Doc: "the answer's body comes as fast as it can, without end", Protocols: all,
			act: actEndlessBody,
			Cases: []Case{
				{On: h1only, Want: answered.cut().fate(FateGone)},
				{On: muxed, Want: answered.cut().fate(FateKeep)},
			},
		},
		{
			Name: "truncated-body", Doc: "the answer's body is shorter than its announced length", Protocols: all,
			Params: []Param{numberParam("announced", "content length", "1000"), numberParam("sent", "bytes that come", "10")},
			act:    actTruncatedBody,
			Cases: []Case{
				{On: h1only, Want: answered.cut().fate(FateGone)},
				{On: muxed, Want: answered.cut()},
			},
		},
		{
			Name: "reset-after-headers", Doc: "200, a piece of the body, then a reset", Protocols: all,
			Params: []Param{codeParam("of the reset; 0 = the protocol's internal error", "0", nil)}, act: actResetAfterHeaders,
			Cases: []Case{
				{On: h1only, Want: answered.cut().fate(FateGone)},
				{On: h2only, Want: answered.cut()},
				{On: h3only, Want: answered.cut().overtaken(delivery.SentAmbiguous)},
				{On: h3only, Params: "code=0x10b", Want: answered.cut().lie().overtaken(delivery.SentRefused)},
				{On: h2only, Params: "code=7", Want: answered.cut().lie()},
			},
		},
		{
			Name: "early-answer", Doc: "200 before the request's body has been read, which is then not wanted any more", Protocols: all,
			act: actEarlyAnswer,
			Cases: []Case{
				{On: h1only, Want: Expect{Sent: delivery.SentProcessed, Status: 200, Runs: 1, Pool: FateGone}.withBody(4 << 20)},
				{On: muxed, Want: Expect{Sent: delivery.SentProcessed, Status: 200, Runs: 1}.withBody(1 << 20)},
			},
		},
		{
			Name: "gzip-bomb", Doc: "a small gzip body that expands to size", Protocols: all,
			Params: []Param{numberParam("size", "bytes when expanded", "67108864")}, act: actGzipBomb,
			Cases: []Case{{Params: "size=4194304", Want: answered}, {On: muxed, Params: "size=1073741824", Want: answered.cut()}},
		},
		{
			Name: "h1-double-answer", Doc: "two answers to one request", Protocols: h1only,
			act:   actDoubleAnswer,
			Cases: []Case{{Want: answered.fate(FateGone)}},
		},
		{
			Name: "h1-connection-close", Doc: "the answer says that it is the connection's last", Protocols: h1only,
			act:   actConnectionClose,
			Cases: []Case{{Want: answered.fate(FateGone)}},
		},
	}
}

// statusKinds are answers whose head alone is the matter.
func statusKinds() []Kind {
	return []Kind{
		{
			Name: "misdirected", Doc: "421: not the right server, not processed", Protocols: all,
			Params: []Param{whenParamBefore()}, act: actStatus(421),
			Cases: []Case{
				{On: tcp, Want: Expect{Sent: delivery.SentProcessed, Status: 421, Pool: FateKeep}},
				{On: h3only, Want: Expect{Sent: delivery.SentRefused, Status: 421}},
			},
		},
		{
			Name: "too-early", Doc: "425: not processed, since it could be a replay; times=1 makes the next one a 200", Protocols: all,
			Params: []Param{whenParamBefore()}, act: actStatus(425),
			Cases: []Case{{Params: "times=1", Want: Expect{Sent: delivery.SentRefused, Status: 425}}},
		},
		{
			Name: "redirect", Doc: "a redirect", Protocols: all,
			Params: []Param{
				numberParam("status", "of the answer", "302"),
				{Name: "location", Doc: "where to, percent-encoded", Default: "https%3A%2F%2Fredirect.invalid%2F", form: formText},
			},
			act: actRedirect,
			Cases: []Case{
				{Params: "status=301", Want: answered.withStatus(301).fate(FateKeep)},
				{Params: "status=302", Want: answered.withStatus(302).fate(FateKeep)},
				{Params: "status=303", Want: answered.withStatus(303).fate(FateKeep)},
				{Params: "status=307", Want: answered.withStatus(307).fate(FateKeep)},
				{Params: "status=308", Want: answered.withStatus(308).fate(FateKeep)},
			},
		},
		{
			Name: "retry-after", Doc: "an answer with a Retry-After header", Protocols: all,
			Params: []Param{
				numberParam("status", "of the answer", "503"), numberParam("seconds", "to wait", "1"),
				{Name: "form", Doc: "of the value", Default: "seconds", Words: retryAfterForms, form: formWord},
			},
			act:   actRetryAfter,
			Cases: retryAfterCases(),
		},
		{
			Name: "alt-svc", Doc: "200 with an Alt-Svc header", Protocols: all,
			Params: []Param{
				{Name: "form", Doc: "of the header, for this server's port", Default: "h3", Words: altSvcForms, form: formWord},
				{Name: "value", Doc: "the header itself, percent-encoded", form: formText},
			},
			act:   actAltSvc,
			Cases: altSvcCases(),
		},
		{
			Name: "status", Doc: "an answer with that status", Protocols: all,
			Params: []Param{numberParam("status", "of the answer", "500")}, act: actAnyStatus,
			Cases: []Case{
				{Params: "status=500", Want: answered.withStatus(500).fate(FateKeep)},
				{Params: "status=410", Want: answered.withStatus(410).fate(FateKeep)},
				{Params: "status=204", Want: answered.withStatus(204).fate(FateKeep)},
			},
		},
	}
}

// whenParamBefore is for answers that say "not processed": they tell the truth
// unless they are told to lie.
func whenParamBefore() Param {
	p := whenParam("before", "after")
	p.Default = "before"
	return p
}

func retryAfterCases() []Case {
	var cases []Case
	for _, form := range retryAfterForms {
		cases = append(cases, Case{Params: "form=" + form, Want: answered.withStatus(503).fate(FateKeep)})
	}
	return append(cases, Case{Params: "status=429", Want: answered.withStatus(429).fate(FateKeep)})
}

func altSvcCases() []Case {
	var cases []Case
	for _, form := range altSvcForms {
		cases = append(cases, Case{Params: "form=" + form, Want: answered.fate(FateKeep)})
	}
	return cases
}
