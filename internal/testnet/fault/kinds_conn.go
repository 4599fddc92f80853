package fault

import "github.com/dispatcher-engine/dispatcher/delivery"

// goAwayKinds are the ends that a peer announces.
func goAwayKinds() []Kind {
	then := func(words ...string) Param {
		return Param{Name: "then", Doc: "what follows the frame", Default: words[0], Words: words, form: formWord}
	}
	return []Kind{
		{
			Name: "h3-goaway", Doc: "GOAWAY; its id is the first stream that is not processed (RFC 9114 section 5.2)", Protocols: h3only,
			Params: []Param{
				{Name: "id", Doc: "beside the request's stream", Default: "at", Words: []string{"below", "at", "above"}, form: formWord},
				then("hang", "reset", "close", "answer"), whenParam("before", "after", "idle"),
			},
			at: whenPoint, act: actGoAway,
			Cases: []Case{
				{Params: "id=at,then=hang,when=before", Want: refused(0, FateGone, delivery.BrokenDrain)},
				{Params: "id=at,then=hang,when=after", Want: refused(1, FateGone, delivery.BrokenDrain)},
				{Params: "id=below,then=hang,when=before,after=1", Want: refused(0, FateGone, delivery.BrokenDrain)},
				{Params: "id=at,then=reset,when=before", Want: refused(0, FateGone, 0).openBroken()},
				{Params: "id=above,then=answer", Want: answered.fate(FateGone)},
				{Params: "id=above,then=close", Want: ambiguous(1, FateGone, 0)},
				{Params: "id=above,then=close,when=before", Want: ambiguous(0, FateGone, 0)},
				{Params: "id=above,then=hang", Want: ambiguous(1, FateGone, 0).atDeadline()},
				{Params: "id=above,when=idle", Want: answered.fate(FateGone)},
			},
		},
		{
			Name: "h2-goaway", Doc: "GOAWAY; its id is the last stream that may be processed (RFC 9113 section 6.8)", Protocols: h2only,
			Params: []Param{
				{Name: "last", Doc: "beside the request's stream", Default: "below", Words: []string{"below", "at", "above"}, form: formWord},
				codeParam("of the frame", "NO_ERROR", h2Codes),
				then("hang", "reset", "close", "answer"), whenParam("before", "after", "idle"),
			},
			at: whenPoint, act: actGoAway,
			Cases: []Case{
				{Params: "last=below,then=hang,when=before", Want: refused(0, FateGone, 0).openBroken()},
				{Params: "last=below,then=hang,when=before,after=1", Want: refused(0, FateGone, 0).openBroken()},
				{Params: "last=below,then=hang,when=after", Want: refused(1, FateGone, 0).openBroken()},
				{Params: "last=below,code=ENHANCE_YOUR_CALM,then=hang,when=before", Want: refused(0, FateGone, 0).openBroken()},
				{Params: "last=at,then=close", Want: ambiguous(1, FateGone, 0).openBroken()},
				{Params: "last=at,then=close,when=before", Want: ambiguous(0, FateGone, 0).openBroken()},
				{Params: "last=at,code=INTERNAL_ERROR,then=close", Want: ambiguous(1, FateGone, 0).openBroken()},
				{Params: "last=at,then=answer", Want: answered.fate(FateGone)},
				{Params: "last=above,then=answer", Want: answered.fate(FateGone)},
				{Params: "last=above,then=close", Want: ambiguous(1, FateGone, 0).openBroken()},
				{Params: "last=at,then=hang", Want: ambiguous(1, FateGone, 0).openBroken().atDeadline()},
				{Params: "last=at,when=idle", Want: answered.fate(FateGone)},
			},
		},
	}
}

// pathKinds are the ends that nobody announces.
func pathKinds() []Kind {
	return []Kind{
		{
			Name: "path-death", Doc: "nothing passes any more: on the TCP connection, or on every QUIC connection of the moment", Protocols: all,
			Params: []Param{whenParam("handshake", "before", "after", "idle")},
			at:     whenPoint, act: actDie, hit: hitDie,
			Cases: []Case{
				{Params: "when=handshake", Want: ambiguous(0, FateAny, 0).latent()},
				{Params: "when=before", Want: ambiguous(0, FateAny, 0).latent()},
				{Params: "when=after", Want: ambiguous(1, FateAny, 0).latent()},
				{Params: "when=idle", Want: answered.latent().inTime()},
			},
		},
		{
			Name: "stateless-reset", Doc: "the server has forgotten every QUIC connection and says so (RFC 9000 section 10.3)", Protocols: h3only,
			Params: []Param{whenParam("before", "after", "idle")},
			at:     whenPoint, act: actStatelessReset,
			Cases: []Case{
				{Params: "when=before", Want: ambiguous(0, FateGone, delivery.BrokenAfterDeath)},
				{Params: "when=after", Want: ambiguous(1, FateGone, delivery.BrokenAfterDeath)},
				{Params: "when=idle", Want: answered.fate(FateGone).overtaken(delivery.SentAmbiguous)},
			},
		},
		{
			Name: "restart", Doc: "the server restarts on its port: TCP is reset, QUIC forgotten without a word", Protocols: all,
			Params: []Param{whenParam("before", "after", "idle")},
			at:     whenPoint, act: actRestart,
			Cases: []Case{
				{On: tcp, Params: "when=before", Want: ambiguous(0, FateGone, 0)},
				{On: tcp, Params: "when=after", Want: ambiguous(1, FateGone, 0)},
				{On: tcp, Params: "when=idle", Want: answered.fate(FateGone)},
				{On: h3only, Params: "when=before", Want: ambiguous(0, FateAny, 0).latent()},
				{On: h3only, Params: "when=after", Want: ambiguous(1, FateAny, 0).latent()},
				{On: h3only, Params: "when=idle", Want: answered.latent().inTime()},
			},
		},
	}
}

// streamKinds are requests that get no further.
func streamKinds() []Kind {
	return []Kind{
		{
			Name: "hang", Doc: "the request is never answered", Protocols: all,
			Params: []Param{whenParam("before", "after")},
			act:    actHang,
			Cases: []Case{
				{On: h1only, Params: "when=before", Want: ambiguous(0, FateGone, 0).atDeadline()},
				{On: h1only, Params: "when=after", Want: ambiguous(1, FateGone, 0).atDeadline()},
				{On: muxed, Params: "when=before", Want: ambiguous(0, FateAny, 0).atDeadline()},
				{On: muxed, Params: "when=after", Want: ambiguous(1, FateAny, 0).atDeadline()},
			},
		},
		{
			Name: "stream-limit", Doc: "no more than limit streams at a time, and requests that hang on them", Protocols: muxed,
			Params: []Param{{Name: "limit", Doc: "streams of a connection", Default: "1"}, whenParam("before", "after")},
			act:    actHang,
			Cases:  []Case{{Params: "limit=1", Want: ambiguous(1, FateAny, 0).atDeadline()}},
		},
		{
			Name: "stop-reading", Doc: "the request's body is not read, and flow control stops it", Protocols: all,
			act: actStopReading,
			Cases: []Case{
				{On: h1only, Want: ambiguous(0, FateGone, 0).atDeadline().withBody(4 << 20)},
				{On: muxed, Want: ambiguous(0, FateAny, 0).atDeadline().withBody(1 << 20)},
			},
		},
		{
			Name: "noise", Doc: "what comes is no answer", Protocols: all,
			Params: []Param{{
				Name: "form", Doc: "of another protocol, without a status, or nothing at all", Default: "bytes",
				Words: []string{"bytes", "no-status", "empty"}, form: formWord,
			}},
			act: actNoise,
			Cases: []Case{
				{On: h1only, Params: "form=bytes", Want: ambiguous(1, FateGone, 0)},
				{On: h1only, Params: "form=no-status", Want: ambiguous(1, FateGone, 0)},
				{On: h1only, Params: "form=empty", Want: ambiguous(1, FateGone, 0)},
				{On: muxed, Params: "form=bytes", Want: ambiguous(1, FateAny, 0)},
				{On: muxed, Params: "form=no-status", Want: ambiguous(1, FateAny, 0)},
				{On: muxed, Params: "form=empty", Want: ambiguous(1, FateAny, 0)},
			},
		},
	}
}
