package fault

import (
	"slices"
	"sync"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// The protocols by which the tables narrow things.
var (
	h1only = []delivery.Protocol{delivery.ProtocolHTTP1}
	h2only = []delivery.Protocol{delivery.ProtocolHTTP2}
	h3only = []delivery.Protocol{delivery.ProtocolHTTP3}
	tcp    = []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2}
	muxed  = []delivery.Protocol{delivery.ProtocolHTTP2, delivery.ProtocolHTTP3}
	all    = []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3}
)

// kinds is the closed list, in the order of a connection's life.
var kinds = sync.OnceValue(func() []*Kind {
	list := slices.Concat(dialKinds(), resetKinds(), goAwayKinds(), pathKinds(), streamKinds(), answerKinds(), statusKinds())
	out := make([]*Kind, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
})

// Parameters that several kinds have.
func whenParam(words ...string) Param {
	return Param{Name: "when", Doc: "the moment, as seen from the handler", Default: "after", Words: words, form: formWord}
}

func overParam() Param {
	return Param{Name: "over", Doc: "on which socket", Default: "both", Words: []string{"tcp", "udp", "both"}, form: formWord}
}

func codeParam(doc, def string, codes map[string]uint64) Param {
	return Param{Name: "code", Doc: doc, Default: def, Codes: codes}
}

// whenPoint maps the parameter "when" to a point.
func whenPoint(f Fault) point {
	switch f.word("when") {
	case "handshake":
		return atHandshake
	case "idle":
		return atIdle
	default:
		return atRequest
	}
}

func always(p point) func(Fault) point { return func(Fault) point { return p } }

// Names of codes (RFC 9114 section 8.1, RFC 9113 section 7).
var (
	h3Codes = map[string]uint64{
		"H3_NO_ERROR": 0x100, "H3_GENERAL_PROTOCOL_ERROR": 0x101, "H3_INTERNAL_ERROR": 0x102,
		"H3_STREAM_CREATION_ERROR": 0x103, "H3_CLOSED_CRITICAL_STREAM": 0x104, "H3_FRAME_UNEXPECTED": 0x105,
		"H3_FRAME_ERROR": 0x106, "H3_EXCESSIVE_LOAD": 0x107, "H3_ID_ERROR": 0x108, "H3_SETTINGS_ERROR": 0x109,
		"H3_MISSING_SETTINGS": 0x10a, "H3_REQUEST_REJECTED": 0x10b, "H3_REQUEST_CANCELLED": 0x10c,
		"H3_REQUEST_INCOMPLETE": 0x10d, "H3_MESSAGE_ERROR": 0x10e, "H3_CONNECT_ERROR": 0x10f, "H3_VERSION_FALLBACK": 0x110,
	}
	h2Codes = map[string]uint64{
		"NO_ERROR": 0, "PROTOCOL_ERROR": 1, "INTERNAL_ERROR": 2, "FLOW_CONTROL_ERROR": 3, "SETTINGS_TIMEOUT": 4,
		"STREAM_CLOSED": 5, "FRAME_SIZE_ERROR": 6, "REFUSED_STREAM": 7, "CANCEL": 8, "COMPRESSION_ERROR": 9,
		"CONNECT_ERROR": 10, "ENHANCE_YOUR_CALM": 11, "INADEQUATE_SECURITY": 12, "HTTP_1_1_REQUIRED": 13,
	}
)

const (
	h3NoError         = 0x100
	h3InternalError   = 0x102
	h3RequestRejected = 0x10b
	h3VersionFallback = 0x110
	h2NoError         = 0
	h2InternalError   = 2
	h2RefusedStream   = 7
)

// Outcomes that many cases share.
var (
	noConnection = Expect{Sent: delivery.SentNever, Pool: FateNone}
	answered     = Expect{Sent: delivery.SentProcessed, Status: 200, Runs: 1}
)

func never(b delivery.Broken) Expect {
	e := noConnection
	e.Broken = b
	return e
}

func refused(runs int, pool Fate, b delivery.Broken) Expect {
	return Expect{Sent: delivery.SentRefused, Runs: runs, Pool: pool, Broken: b, Lie: runs > 0}
}

func ambiguous(runs int, pool Fate, b delivery.Broken) Expect {
	return Expect{Sent: delivery.SentAmbiguous, Runs: runs, Pool: pool, Broken: b}
}

func (e Expect) atDeadline() Expect {
	e.Deadline = true
	return e
}

func (e Expect) early() Expect {
	e.Early, e.BrokenOpen = true, true
	return e
}

func (e Expect) openBroken() Expect {
	e.BrokenOpen = true
	return e
}

func (e Expect) latent() Expect {
	e.Latent, e.BrokenOpen, e.Deadline, e.Pool = true, true, true, FateAny
	return e
}

func (e Expect) inTime() Expect {
	e.Deadline = false
	return e
}

func (e Expect) withBody(n int) Expect {
	e.Body = n
	return e
}

func (e Expect) lie() Expect {
	e.Lie = true
	return e
}

func (e Expect) overtaken(by delivery.Sent) Expect {
	e.Overtakes, e.Overtaken, e.BrokenOpen = true, by, true
	return e
}

func (e Expect) cut() Expect {
	e.Cut = true
	return e
}

func (e Expect) fate(f Fate) Expect {
	e.Pool = f
	return e
}

func (e Expect) withStatus(status int) Expect {
	e.Status = status
	return e
}
