package transport

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestCases holds the rows of public reports that concern one HTTP exchange. The
// rows that need a selector or a scheduler are tested where those live; here is
// the half that the transport promises them.
func TestCases(t *testing.T) {
	all := []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3}
	perProtocol := func(f func(*testing.T, delivery.Protocol)) func(*testing.T) {
		return func(t *testing.T) {
			for _, p := range all {
				t.Run(p.String(), func(t *testing.T) {
					t.Parallel()
					f(t, p)
				})
			}
		}
	}
	for id, f := range map[string]func(*testing.T){
		"H1":  refusedRequestCanBeSentAgainWhole,
		"H2":  resetIsAmbiguousAndSentOnce,
		"H3":  thirtyResetsLeaveOneConnection,
		"H4":  silentHostFailsEachCallerForItsOwnReason,
		"H6":  goAwayRefusesExactlyTheRequestsAboveItsID,
		"H8":  postAfterTheIdleTimeoutRedials,
		"H9":  deadPathIsEvictedAndClosed,
		"H12": tooLargeInitialIsNotATimeout,
		"H13": segmentationOffloadFailureStaysLocal,
		"H14": unreachableFamilyGivesWayAtOnce,
		"H15": postIsNeverEarlyData,
		"H17": secondAddressAfterTheStagger,
		"H18": thousandHostsShareTwoSockets,
		"H20": closeEndsEveryQUICConnection,
		"A14": alternativePortKeepsTheOriginsName,
		"A15": alternativeMustSpeakForTheOrigin,
		"R4":  hintsAreUsedUntilAnswersArrive,
		"U17": deniedTargetIsNotAskedOfTheProxy,
		"S8":  badHeaderValueFailsAlikeEverywhere,
		"P1":  perProtocol(redirectIsAnAnswer),
		"P3":  perProtocol(emptyAnswerDoesNotWait),
		"P4":  perProtocol(goneIsAnAnswer),
		"P5":  perProtocol(drippingBodyIsCutAtTheDeadline),
		"P7":  perProtocol(endlessBodyIsCutAtTheCap),
		"P8":  perProtocol(encodedBodyStaysEncoded),
		"P9":  perProtocol(smallBodiesKeepOneConnection),
		"P10": burstStaysBelowTheCap,
		"B16": goAwayAfterTheBodyLeavesItWhole,
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			f(t)
		})
	}
}

// goAwayAfterTheBodyLeavesItWhole: a peer sends GOAWAY once it has a body's last
// byte. When the GOAWAY includes the request, its answer still counts; when it
// excludes the request, the peer vows not to have processed it, and the same
// request goes out once more, on a new connection. Either way each connection
// saw a whole body, as long as its Content-Length says.
func goAwayAfterTheBodyLeavesItWhole(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 3<<10) // below the first window of a connection
	for name, refuse := range map[string]bool{"includes it": false, "excludes it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			arrived := make(chan bodyOfHTTP2, 4)
			peer := serveRawTCP(t, func(s *rawTCP, conn net.Conn, number int64) {
				p := &http2Peer{Framer: http2.NewFramer(conn, conn), server: s, conn: conn}
				stream, got, ok := p.readBody()
				if !ok {
					return
				}
				arrived <- got
				switch {
				case number > 1:
					p.answer(stream, true, ":status", "204")
				case refuse:
					_ = p.WriteGoAway(0, http2.ErrCodeNo, nil)
				default:
					_ = p.WriteGoAway(stream, http2.ErrCodeNo, nil)
					p.answer(stream, true, ":status", "202")
				}
				_, _ = io.Copy(io.Discard, conn) // until the client closes
			}, protoHTTP2)
			ep, ctx := endpoint(peer.port), within(t, 10*time.Second)
			resp, err := b.tcp(ctx, ep).RoundTrip(ctx, post(ep, body))
			if refuse {
				if se := wantSent(t, err, delivery.SentRefused, delivery.CauseGoAway); se.Broken != delivery.BrokenDrain {
					t.Errorf("broken: %v", se.Broken)
				}
			} else if err != nil || resp.Status != http.StatusAccepted {
				t.Fatalf("%+v, %v", resp, err)
			}
			if _, warm := b.tr.Warm(ep, Want{}); warm {
				t.Error("a connection that drains is offered")
			}
			if resp, err = b.tcp(ctx, ep).RoundTrip(ctx, post(ep, body)); err != nil || resp.Status != http.StatusNoContent {
				t.Fatalf("on the next connection: %+v, %v", resp, err)
			}
			for i := range 2 {
				got := <-arrived
				if got.body != body || got.length != strconv.Itoa(len(body)) {
					t.Errorf("request %d: %d bytes arrived, Content-Length %q, want %d", i+1, len(got.body), got.length, len(body))
				}
			}
			if n := peer.conns.Load(); n != 2 || len(arrived) > 0 {
				t.Errorf("%d connections and %d requests too many, want 2 and none", n, len(arrived))
			}
		})
	}
}

// bodyOfHTTP2 is what arrived of a request.
type bodyOfHTTP2 struct{ length, body string }

// readBody begins a connection and reads its first request to the last byte.
func (p *http2Peer) readBody() (stream uint32, got bodyOfHTTP2, ok bool) {
	if _, err := io.CopyN(io.Discard, p.conn, int64(len(http2.ClientPreface))); err != nil {
		return 0, got, false
	}
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = p.WriteSettings()
	for {
		frame, err := p.ReadFrame()
		if err != nil {
			return 0, got, false
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = p.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			for _, field := range f.RegularFields() {
				if field.Name == "content-length" {
					got.length = field.Value
				}
			}
		case *http2.DataFrame:
			got.body += string(f.Data())
			if f.StreamEnded() {
				return f.StreamID, got, true
			}
		}
	}
}
