package origin

import (
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestJudgementFollowsWhetherTheOriginSawTheEvents(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		result delivery.Result
		want   Verdict
	}{
		"200":              {delivery.Result{Status: 200}, VerdictDelivered},
		"400":              {delivery.Result{Status: 400}, VerdictRejected},
		"413":              {delivery.Result{Status: 413}, VerdictRejected},
		"401":              {delivery.Result{Status: 401}, VerdictDown},
		"404":              {delivery.Result{Status: 404}, VerdictDown},
		"410":              {delivery.Result{Status: 410}, VerdictDown},
		"429":              {delivery.Result{Status: 429}, VerdictDown},
		"302":              {delivery.Result{Status: 302}, VerdictDown},
		"500":              {delivery.Result{Status: 500}, VerdictSuspect},
		"503":              {delivery.Result{Status: 503}, VerdictSuspect},
		"503 with a wait":  {delivery.Result{Status: 503, RetryAfter: "30"}, VerdictDown},
		"refused":          {delivery.Result{Sent: delivery.SentNever, Cause: delivery.CauseConnect}, VerdictDown},
		"goaway":           {delivery.Result{Sent: delivery.SentRefused, Cause: delivery.CauseGoAway}, VerdictDown},
		"reset":            {delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseReset}, VerdictSuspect},
		"timeout":          {delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseTimeout}, VerdictSuspect},
		"our own crash":    {delivery.Result{Cause: delivery.CauseRecovered}, VerdictDown},
		"our own shutdown": {delivery.Result{Cause: delivery.CauseShutdown}, VerdictInterrupted},
		"address denied":   {delivery.Result{Cause: delivery.CausePolicyLiteral}, VerdictDown},
		"no files":         {delivery.Result{Cause: delivery.CauseLocal}, VerdictDown},
	} {
		if got := Judge(c.result, delivery.Classify(c.result, now)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
