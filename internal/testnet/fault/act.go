package fault

import "github.com/dispatcher-engine/dispatcher/delivery"

// actReset ends the request's stream.
func actReset(x *exchange, f Fault) {
	if !x.until(f) {
		return
	}
	x.resetWith(f.num("code"))
}

// resetWith ends the stream, and notes whether the code says "not processed".
func (x *exchange) resetWith(code uint64) {
	switch {
	case x.proto == delivery.ProtocolHTTP3 && (code == h3RequestRejected || code == h3VersionFallback),
		x.proto == delivery.ProtocolHTTP2 && code == h2RefusedStream:
		x.refuse()
	}
	x.reset(code)
}

// actClose ends the connection. QUIC takes the code, TCP the manner.
func actClose(x *exchange, f Fault) {
	if x.until(f) {
		hitClose(x.connection(), f)
	}
}

func hitClose(c connection, f Fault) { c.closeNow(f.word("how"), f.num("code")) }

// goAwayer is a connection that can announce its end.
type goAwayer interface {
	// goAway announces it, with an id below, at or above that of the stream that
	// asks, and the error code of HTTP/2.
	goAway(where string, code uint64)
}

func actGoAway(x *exchange, f Fault) {
	g, ok := x.wire.(goAwayer)
	if !ok || !x.until(f) {
		return
	}
	where := f.word("id") + f.word("last")
	// The two protocols count from different sides: "at" excludes over HTTP/3
	// and includes over HTTP/2.
	if where == "below" || where == "at" && x.proto == delivery.ProtocolHTTP3 {
		x.refuse()
	}
	g.goAway(where, f.num("code"))
	if f.is("when", "idle") {
		return
	}
	switch f.word("then") {
	case "answer":
		x.answerNow()
	case "close":
		x.connection().closeNow("fin", h3NoError)
	case "reset":
		code := uint64(h2RefusedStream)
		if x.proto == delivery.ProtocolHTTP3 {
			code = h3RequestRejected
		}
		x.refuse()
		x.reset(code)
	default:
		x.hang()
	}
}

func actDie(x *exchange, f Fault) {
	if x.until(f) {
		x.connection().die()
	}
}

func hitDie(c connection, _ Fault) { c.die() }

func actStatelessReset(x *exchange, f Fault) {
	if x.until(f) {
		x.s.hub.forget(true)
	}
}

func actRestart(x *exchange, f Fault) {
	if x.until(f) {
		x.s.Restart()
	}
}

func actHang(x *exchange, f Fault) {
	if x.until(f) {
		x.hang()
	}
}

func actStopReading(x *exchange, _ Fault) {
	if w, ok := x.wire.(*http1Stream); ok {
		w.unread = true
	}
	x.hang()
}

func actNoise(x *exchange, f Fault) {
	if x.process() {
		x.noise(f.word("form"))
	}
}
