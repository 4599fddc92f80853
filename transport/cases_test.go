package transport

import (
	"testing"

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
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			f(t)
		})
	}
}
