package signing

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Mistake names a known reason why a signature that ought to be right is not.
type Mistake string

// The mistakes that [Explain] knows.
const (
	MistakeConfig           Mistake = "config"             // a setting cannot be used at all
	MistakeSecretNotDecoded Mistake = "secret_not_decoded" // the text was the key, its bytes are due (or the other way round)
	MistakeSecretPrefix     Mistake = "secret_prefix"      // a prefix was left on or taken off
	MistakeSecretSpace      Mistake = "secret_white_space" // white space around the secret
	MistakeSecretKind       Mistake = "secret_kind"        // the secret of another scheme, or the wrong half of a pair
	MistakeBody             Mistake = "body_altered"       // the body is not the bytes that were signed
	MistakeEncoding         Mistake = "encoding"           // hex where base64 is due, or the reverse
	MistakeAlgorithm        Mistake = "algorithm"          // another hash
	MistakeScheme           Mistake = "scheme"             // signed by another scheme's rule
	MistakeHeader           Mistake = "header"             // missing, twice, or malformed
	MistakeTimestamp        Mistake = "timestamp"          // outside the tolerance, or not in seconds
	MistakeURL              Mistake = "public_url"         // Twilio signed another URL
	MistakeUnknown          Mistake = "unknown"            // none of these: another secret, or another body
)

// Finding is one mistake.
type Finding struct {
	Mistake Mistake
	// Proven reports that the signature comes out right once this mistake (and
	// the other proven ones) is made. Otherwise it is what the evidence suggests.
	Proven bool
	// Message says in a sentence or two what is wrong and how to mend it. It
	// holds no secret and no signature.
	Message string
}

// Diagnosis is what [Explain] found.
type Diagnosis struct {
	// Err is the result of the verification, nil if it passed.
	Err error
	// Findings are the mistakes, the most certain first. Empty if Err is nil.
	Findings []Finding
}

// Evidence is a request as it was received.
type Evidence struct {
	Header   http.Header
	RawQuery string // for Twilio
	Body     []byte
	Now      time.Time
}

// Explain verifies a request and, if that fails, names the mistake: it makes
// the known ones itself, alone and in pairs, until the signature comes out
// right. It takes the time of up to some hundred verifications.
//
// It is for someone who holds the secret and wonders. Never let it answer a
// request from the network: a forger would be told how close the guess was.
func Explain(cfg VerifierConfig, ev Evidence) Diagnosis {
	d := Diagnosis{}
	v, err := NewVerifier(cfg)
	if err == nil {
		if err = v.verifyEvidence(ev); err == nil {
			return d
		}
	}
	d.Err = err
	for _, ce := range ConfigErrors(err) {
		d.add(cmp.Or(ce.mistake, MistakeConfig), false, ce.Error())
	}
	x := newExplainer(cfg, ev)
	if v != nil {
		d.headers(v, err, x)
	}
	switch {
	case x.layout == nil:
		// Without a scheme there is nothing to try.
	case cfg.Scheme == Twilio:
		d.Findings = append(x.searchTwilio(), d.Findings...)
	default:
		d.Findings = append(x.search(), d.Findings...)
	}
	if len(d.Findings) == 0 {
		d.add(MistakeUnknown, false,
			"no known mistake gives this signature. Either the sender used another secret, or something between it and here changed the body in a way that is not guessed: compare the bytes, not their meaning.")
	}
	return d
}

func (v *Verifier) verifyEvidence(ev Evidence) error {
	c, err := v.begin(ev.Header, ev.RawQuery, ev.Now)
	if err != nil {
		return err
	}
	return c.FinishBody(ev.Body)
}

func (d *Diagnosis) add(m Mistake, proven bool, message string) {
	d.Findings = append(d.Findings, Finding{Mistake: m, Proven: proven, Message: message})
}

// headers adds what the refused headers themselves tell.
func (d *Diagnosis) headers(v *Verifier, err error, x *explainer) {
	ve, ok := errors.AsType[*VerifyError](err)
	if !ok {
		return
	}
	switch ve.Reason {
	case ReasonTimestamp:
		d.timestamp(v, ve, x)
	case ReasonMalformed, ReasonMissingHeader:
		message := fmt.Sprintf("%s %s.", ve.Header, ve.Detail)
		if ve.Header == v.tsHeader && len(x.timestamp) == millisDigits {
			d.add(MistakeTimestamp, true, "the timestamp is in milliseconds; "+string(v.scheme)+" counts in seconds.")
			return
		}
		if ve.Header == "" {
			message = strings.ToUpper(ve.Detail[:1]) + ve.Detail[1:] + "."
		}
		d.add(MistakeHeader, true, message)
	}
}

// timestamp tells an old request from one whose signature is wrong as well.
func (d *Diagnosis) timestamp(v *Verifier, ve *VerifyError, x *explainer) {
	message := fmt.Sprintf("the timestamp is %s. ", ve.Detail)
	lenient := *v
	lenient.tolerance = 1<<63 - 1
	if lenient.verifyEvidence(x.ev) == nil {
		d.add(MistakeTimestamp, true, message+"The signature itself is right: the request is an old one, or one of the two clocks is wrong.")
		x.solved = true
		return
	}
	d.add(MistakeTimestamp, true, message+"Apart from that the signature is wrong too.")
}
