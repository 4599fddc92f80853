package ingress

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

func (x *exchange) checkMethod() verdict {
	if x.r.Method != http.MethodPost {
		return refuse(OutcomeMethod)
	}
	return verdict{}
}

const pathPrefix = "/webhook/"

// checkPath takes tenant and source out of /webhook/{tenant}/{source}. Only the
// exact form counts: no cleaning, no redirects, no trailing slash.
func (x *exchange) checkPath() verdict {
	rest, ok := strings.CutPrefix(x.r.URL.Path, pathPrefix)
	tenant, source, found := strings.Cut(rest, "/")
	if !ok || !found || delivery.CheckName(tenant) != nil || delivery.CheckName(source) != nil {
		return refuse(OutcomePath)
	}
	x.tenant, x.name = tenant, source
	return verdict{}
}

func (x *exchange) checkDeclaredLength() verdict {
	if x.r.ContentLength > x.in.cfg.MaxBody {
		return refuse(OutcomeDeclaredTooLarge)
	}
	return verdict{}
}

func (x *exchange) checkFailures() verdict {
	x.client = clientAddr(x.r, x.in.cfg.TrustedProxies)
	if wait := x.in.failures.wait(x.tenant, x.client, x.start); wait > 0 {
		return verdict{outcome: OutcomeThrottled, retryAfter: wait}
	}
	return verdict{}
}

func (x *exchange) findSource() verdict {
	source, err := x.in.cache.get(x.r.Context(), x.tenant, x.name)
	switch {
	case err == nil:
		x.source = source
		return verdict{}
	case errors.Is(err, ErrUnknownSource):
		return refuse(OutcomeUnknownSource)
	case x.r.Context().Err() != nil:
		return refuse(OutcomeBodyBroken) // the sender left while it was looked up
	default:
		return verdict{outcome: OutcomeSourceUnknowable, err: err}
	}
}

// checkSourceLimits is what the source says about a request before its body.
func (x *exchange) checkSourceLimits() verdict {
	s, h := x.source, x.r.Header
	if x.r.ContentLength > s.maxBody {
		return refuse(OutcomeTooLarge)
	}
	if !s.accepts(h.Get("Content-Type")) {
		return refuse(OutcomeContentType)
	}
	encoding, ok := contentEncoding(h)
	if !ok || encoding != encodingNone && !s.Decompress {
		return refuse(OutcomeContentEncoding)
	}
	x.encoding = encoding
	if !s.allows(x.client) {
		return refuse(OutcomeAddress)
	}
	return verdict{}
}

// checkReady spares sender and disk a body that could not be stored.
func (x *exchange) checkReady() verdict {
	if err := x.in.enqueuer.Ready(); err != nil {
		return verdict{outcome: OutcomeNotReady, err: err}
	}
	return verdict{}
}

func (x *exchange) beginSignature() verdict {
	check, err := x.source.verifier.BeginRequest(x.r, time.Now())
	if err != nil {
		return unverifiedBy(err)
	}
	x.check = check
	return verdict{}
}

// unverifiedBy translates an error of a verification. Its text never holds what
// would have been right, so the sender may see it.
func unverifiedBy(err error) verdict {
	v := verdict{outcome: OutcomeMismatch, detail: err.Error()}
	if e, ok := errors.AsType[*signing.VerifyError](err); ok {
		switch e.Reason {
		case signing.ReasonMissingHeader:
			v.outcome = OutcomeMissingSignature
		case signing.ReasonMalformed:
			v.outcome = OutcomeMalformed
		case signing.ReasonTimestamp:
			v.outcome = OutcomeTimestamp
		case signing.ReasonMismatch:
		}
	}
	return v
}
