package signing

import (
	"crypto/ed25519"
	"strconv"
	"strings"
	"time"
)

// Check is a request on its way through a [Verifier]: its headers are in
// order, its body is being read. One goroutine uses it. A Check that is given
// up, because reading the body failed, needs no closing.
type Check struct {
	v       *Verifier
	env     envelope
	macs    []*macState // HMAC: one for each key
	message []byte      // Ed25519: prefix and body
	twilio  *twilioCheck
	done    bool
}

// Write takes the next piece of the body. It fails only after Finish. Where
// [Verifier.Buffers] is true the piece is kept; limiting it is the caller's part.
func (c *Check) Write(b []byte) (int, error) {
	switch {
	case c.done:
		return 0, ErrFinished
	case c.twilio != nil:
		c.twilio.write(b)
	case c.macs != nil:
		for _, m := range c.macs {
			m.Write(b)
		}
	default:
		c.message = append(c.message, b...)
	}
	return len(b), nil
}

// Finish says whether the request is genuine: nil, or a [*VerifyError] with
// [ReasonMismatch] (for Twilio also [ReasonMalformed], for a form that is none).
// A second call returns [ErrFinished].
func (c *Check) Finish() error {
	if c.done {
		return ErrFinished
	}
	c.done = true
	switch {
	case c.twilio != nil:
		return c.finishTwilio()
	case c.macs != nil:
		return c.finishMAC()
	default:
		return c.finishEd25519()
	}
}

// FinishBody is Write and Finish in one, for a caller that holds the body. It
// makes no second copy of what was not written yet.
func (c *Check) FinishBody(body []byte) error {
	if c.twilio != nil && !c.done {
		c.twilio.take(body)
		return c.Finish()
	}
	if _, err := c.Write(body); err != nil {
		return err
	}
	return c.Finish()
}

// ID returns the message id, "" for a scheme that does not sign one. It is to
// be believed only after Finish returned nil.
func (c *Check) ID() string { return c.env.id }

// Timestamp returns when the message was signed, the zero time for a scheme
// that does not say. It is to be believed only after Finish returned nil.
func (c *Check) Timestamp() time.Time {
	t, _ := c.v.parseTimestamp(c.env.timestamp)
	return t
}

func (c *Check) finishMAC() error {
	after := appendParts(nil, c.v.content.after, c.env.id, []byte(c.env.timestamp))
	match := false
	for i, m := range c.macs {
		m.Write(after)
		// No early end: how long this takes does not tell which secret it was.
		match = matchAny(m.finish(), c.env.sigs) || match
		c.v.keys[i].mac.put(m)
	}
	c.macs = nil
	if !match {
		return c.mismatch()
	}
	return nil
}

func (c *Check) finishEd25519() error {
	c.message = appendParts(c.message, c.v.content.after, c.env.id, []byte(c.env.timestamp))
	match := false
	for _, k := range c.v.keys {
		for _, sig := range c.env.sigs {
			match = ed25519.Verify(k.pub, c.message, sig) || match
		}
	}
	c.message = nil
	if !match {
		return c.mismatch()
	}
	return nil
}

func (c *Check) mismatch() error {
	return c.v.fail(ReasonMismatch, c.v.sigHeader, "does not match the body under any active secret")
}

// idFault says why an id cannot be part of a signed content. Unlike our own
// ids, a provider's may have any visible character, but not what separates it
// from its neighbours: with a dot in it, "a.1" + "2.body" and "a" + "1.2.body"
// would carry the same signature.
func (v *Verifier) idFault(id string) string {
	if len(id) > maxID {
		return "is longer than " + strconv.Itoa(maxID) + " bytes"
	}
	for _, sep := range v.content.separators {
		if strings.Contains(id, sep) {
			return "has " + strconv.Quote(sep) + " in it, which makes the signed content ambiguous"
		}
	}
	return valueFault(id)
}

// Lengths of a Unix time in digits: seconds have ten of them until the year
// 2286; generic senders may give milliseconds.
const (
	maxSecondDigits = 11
	millisDigits    = 13
)

// parseTimestamp reads a Unix time: digits only, no sign, no white space.
func (l *layout) parseTimestamp(text string) (time.Time, bool) {
	millis := l.spec.generic && len(text) == millisDigits
	if text == "" || len(text) > maxSecondDigits && !millis {
		return time.Time{}, false
	}
	var n int64
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return time.Time{}, false
		}
		n = n*10 + int64(text[i]-'0')
	}
	if millis {
		return time.UnixMilli(n), true
	}
	return time.Unix(n, 0), true
}

// checkTimestamp holds text against now. Both count in whole seconds, so that
// a tolerance of zero means the same second and not the same nanosecond.
func (v *Verifier) checkTimestamp(text string, now time.Time) error {
	header := v.tsHeader
	if header == "" {
		header = v.sigHeader // Stripe's t=
	}
	t, ok := v.parseTimestamp(text)
	if !ok {
		return v.fail(ReasonMalformed, header, "is not a Unix time in seconds")
	}
	// In seconds, not as a time.Duration, which ends at 292 years.
	age, allowed := now.Unix()-t.Unix(), int64(v.tolerance/time.Second)
	if age > allowed {
		return v.fail(ReasonTimestamp, header, seconds(age)+" old, "+seconds(allowed)+" are allowed")
	}
	if -age > allowed {
		return v.fail(ReasonTimestamp, header, seconds(-age)+" in the future, "+seconds(allowed)+" are allowed")
	}
	return nil
}

func seconds(n int64) string { return strconv.FormatInt(n, 10) + " s" }
