package fault

import "github.com/dispatcher-engine/dispatcher/delivery"

// dialKinds are the faults of connections that never come up.
func dialKinds() []Kind {
	return []Kind{
		{
			Name: "black-hole", Doc: "silence: UDP is swallowed, TCP accepted and never answered", Protocols: all,
			Params: []Param{overParam()}, at: always(atPacket),
			Cases: []Case{
				{On: tcp, Want: noConnection},
				{On: h3only, Want: never(delivery.BrokenTimeout)},
			},
		},
		{
			Name: "closed-port", Doc: "nobody listens, for as long as the server runs", Protocols: all, Standing: true,
			Params: []Param{overParam()}, at: always(atStart),
			Cases: []Case{
				{On: tcp, Params: "over=tcp", Want: noConnection},
				{On: h3only, Params: "over=udp", Want: never(delivery.BrokenTimeout)},
			},
		},
		{
			Name: "connection-refused", Doc: "TCP is reset once accepted, QUIC answers CONNECTION_REFUSED", Protocols: all,
			Params: []Param{overParam()}, at: always(atPacket),
			Cases: []Case{
				{On: tcp, Want: noConnection},
				{On: h3only, Want: never(delivery.BrokenExplicit)},
			},
		},
		{
			Name: "version-negotiation", Doc: "the server speaks other versions of QUIC only", Protocols: h3only,
			at:    always(atPacket),
			Cases: []Case{{Want: never(delivery.BrokenExplicit)}},
		},
		{
			Name: "wrong-alpn", Doc: "no application protocol in common (QUIC: 0x178)", Protocols: all,
			Params: []Param{overParam()}, at: always(atHello),
			Cases: []Case{
				{On: tcp, Want: noConnection},
				{On: h3only, Want: never(delivery.BrokenExplicit)},
			},
		},
		{
			Name: "expired-certificate", Doc: "the certificate has expired", Protocols: all,
			Params: []Param{overParam()}, at: always(atHello),
			Cases: []Case{
				{On: tcp, Want: noConnection},
				{On: h3only, Want: never(delivery.BrokenCertificate)},
			},
		},
		{
			Name: "wrong-name-certificate", Doc: "the certificate is for another name", Protocols: all,
			Params: []Param{overParam()}, at: always(atHello),
			Cases: []Case{
				{On: tcp, Want: noConnection},
				{On: h3only, Want: never(delivery.BrokenCertificate)},
			},
		},
		{
			Name: "tls-alert", Doc: "the handshake is ended by an alert (QUIC: 0x100 and its number)", Protocols: all,
			Params: []Param{overParam(), {Name: "alert", Doc: "its number", Default: "80"}}, at: always(atPacket),
			Cases: []Case{
				{On: tcp, Want: noConnection},
				{On: tcp, Params: "alert=40", Want: noConnection},
				{On: h3only, Want: never(delivery.BrokenExplicit)},
				{On: h3only, Params: "alert=40", Want: never(delivery.BrokenExplicit)},
			},
		},
		{
			Name: "client-certificate", Doc: "a client certificate is demanded, which TLS 1.3 tells after the handshake", Protocols: all,
			Params: []Param{overParam()}, at: always(atHello),
			Cases: []Case{{Want: ambiguous(0, FateGone, delivery.BrokenAfterDeath).early()}},
		},
	}
}

// resetKinds are the ends of a stream and of a connection.
func resetKinds() []Kind {
	return []Kind{
		{
			Name: "h3-reset", Doc: "RESET_STREAM and STOP_SENDING for the request", Protocols: h3only,
			Params: []Param{codeParam("of the reset", "H3_INTERNAL_ERROR", h3Codes), whenParam("before", "after")},
			act:    actReset, Cases: h3ResetCases(),
		},
		{
			Name: "h3-close", Doc: "CONNECTION_CLOSE", Protocols: h3only,
			Params: []Param{codeParam("of the close", "H3_NO_ERROR", h3Codes), whenParam("handshake", "before", "after", "idle")},
			at:     whenPoint, act: actClose, hit: hitClose, Cases: h3CloseCases(),
		},
		{
			Name: "h2-reset", Doc: "RST_STREAM for the request", Protocols: h2only,
			Params: []Param{codeParam("of the reset", "INTERNAL_ERROR", h2Codes), whenParam("before", "after")},
			act:    actReset, Cases: h2ResetCases(),
		},
		{
			Name: "tcp-close", Doc: "the TCP connection ends without a word", Protocols: tcp,
			Params: []Param{
				{Name: "how", Doc: "by FIN or by RST", Default: "fin", Words: []string{"fin", "rst"}, form: formWord},
				whenParam("handshake", "before", "after", "idle"),
			},
			at: whenPoint, act: actClose, hit: hitClose,
			Cases: []Case{
				{Params: "how=fin,when=handshake", Want: ambiguous(0, FateGone, 0).early()},
				{Params: "how=rst,when=handshake", Want: ambiguous(0, FateGone, 0).early()},
				{Params: "how=fin,when=before", Want: ambiguous(0, FateGone, 0)},
				{Params: "how=rst,when=before", Want: ambiguous(0, FateGone, 0)},
				{Params: "how=fin,when=after", Want: ambiguous(1, FateGone, 0)},
				{Params: "how=rst,when=after", Want: ambiguous(1, FateGone, 0)},
				{Params: "how=fin,when=idle", Want: answered.fate(FateGone)},
				{Params: "how=rst,when=idle", Want: answered.fate(FateGone)},
			},
		},
		{
			Name: "h1-close-reuse", Doc: "a reused connection ends as its next request arrives, before a byte of it is read or after", Protocols: h1only,
			Params: []Param{
				{Name: "how", Doc: "by FIN or by RST", Default: "rst", Words: []string{"fin", "rst"}, form: formWord},
				whenParam("before", "after"),
			},
			at: always(atReuse), act: actClose,
			Cases: []Case{
				{Params: "how=rst,when=before", Want: ambiguous(0, FateGone, 0)},
				{Params: "how=fin,when=before", Want: ambiguous(0, FateGone, 0)},
				{Params: "how=rst,when=after", Want: ambiguous(1, FateGone, 0)},
				{Params: "how=fin,when=after", Want: ambiguous(1, FateGone, 0)},
			},
		},
	}
}

func h3ResetCases() []Case {
	cases := []Case{
		{Params: "code=0x10b,when=before", Want: refused(0, FateKeep, 0)},
		{Params: "code=0x10b,when=after", Want: refused(1, FateKeep, 0)},
		{Params: "code=0x110,when=before", Want: refused(0, FateGone, delivery.BrokenExplicit)},
		{Params: "code=0x110,when=after", Want: refused(1, FateGone, delivery.BrokenExplicit)},
	}
	// Whether a connection outlives an ambiguous reset of one stream is open:
	// "drop, or suspect".
	for _, code := range []string{"H3_INTERNAL_ERROR", "H3_REQUEST_CANCELLED", "H3_NO_ERROR", "H3_MESSAGE_ERROR", "0x1234"} {
		cases = append(cases,
			Case{Params: "code=" + code + ",when=before", Want: ambiguous(0, FateAny, 0)},
			Case{Params: "code=" + code + ",when=after", Want: ambiguous(1, FateAny, 0)})
	}
	return cases
}

func h3CloseCases() []Case {
	cases := []Case{
		{Params: "code=0x100,when=handshake", Want: ambiguous(0, FateGone, 0).early()},
		{Params: "code=0x100,when=idle", Want: answered.fate(FateGone).overtaken(delivery.SentAmbiguous)},
	}
	for _, c := range []struct {
		code   string
		broken delivery.Broken
	}{
		{"H3_NO_ERROR", delivery.BrokenNot},
		{"H3_REQUEST_REJECTED", delivery.BrokenNot},
		{"H3_INTERNAL_ERROR", delivery.BrokenAfterDeath},
		{"H3_EXCESSIVE_LOAD", delivery.BrokenAfterDeath},
		{"H3_VERSION_FALLBACK", delivery.BrokenExplicit},
	} {
		cases = append(cases,
			Case{Params: "code=" + c.code + ",when=before", Want: ambiguous(0, FateGone, c.broken)},
			Case{Params: "code=" + c.code + ",when=after", Want: ambiguous(1, FateGone, c.broken)})
	}
	return cases
}

func h2ResetCases() []Case {
	cases := []Case{
		{Params: "code=REFUSED_STREAM,when=before", Want: refused(0, FateKeep, 0)},
		{Params: "code=REFUSED_STREAM,when=after", Want: refused(1, FateKeep, 0)},
	}
	for _, code := range []string{"INTERNAL_ERROR", "PROTOCOL_ERROR", "CANCEL", "ENHANCE_YOUR_CALM", "HTTP_1_1_REQUIRED"} {
		cases = append(cases,
			Case{Params: "code=" + code + ",when=before", Want: ambiguous(0, FateAny, 0)},
			Case{Params: "code=" + code + ",when=after", Want: ambiguous(1, FateAny, 0)})
	}
	return cases
}
