package signing

import (
	"crypto/subtle"
	"strconv"
	"strings"
)

// maxCandidates bounds the signatures read from one header, and
// maxEdCandidates those of Ed25519, of which each costs a verification per key.
const (
	maxCandidates   = 32
	maxEdCandidates = 4
)

// appendSignatures writes the value of the signature header: all of raw (one,
// unless the format overlaps), newest first.
func (l *layout) appendSignatures(dst []byte, timestamp []byte, raw [][]byte) []byte {
	switch l.spec.format {
	case formatList:
		for i, sig := range raw {
			if i > 0 {
				dst = append(dst, ' ')
			}
			dst = append(dst, l.prefix...)
			dst = append(dst, ',')
			dst = l.spec.codec.appendTo(dst, sig)
		}
	case formatStripe:
		dst = append(dst, "t="...)
		dst = append(dst, timestamp...)
		for _, sig := range raw {
			dst = append(dst, ",v1="...)
			dst = l.spec.codec.appendTo(dst, sig)
		}
	default:
		dst = append(dst, l.prefix...)
		dst = l.spec.codec.appendTo(dst, raw[0])
	}
	return dst
}

// envelope is what a request's headers say, decoded: nothing of it is verified.
type envelope struct {
	id        string
	timestamp string   // as written, since that is what was signed
	sigs      [][]byte // raw candidates
}

// parseSignatures decodes the value of the signature header into env.
func (l *layout) parseSignatures(env *envelope, value string) error {
	var err error
	switch l.spec.format {
	case formatList:
		env.sigs, err = l.parseList(value)
	case formatStripe:
		err = l.parseStripe(env, value)
	default:
		var sig []byte
		sig, err = l.parsePlain(value)
		env.sigs = [][]byte{sig}
	}
	return err
}

func (l *layout) parsePlain(value string) ([]byte, error) {
	text, ok := strings.CutPrefix(value, l.prefix)
	if !ok {
		return nil, l.fail(ReasonMalformed, l.sigHeader, "does not begin with "+strconv.Quote(l.prefix))
	}
	sig, ok := l.decode(text)
	if !ok {
		return nil, l.fail(ReasonMalformed, l.sigHeader, "is not "+l.expects())
	}
	return sig, nil
}

// parseList reads "v1,… v1a,… v1,…". Parts of other versions and broken parts
// are passed over: a sender may add what this receiver does not know.
func (l *layout) parseList(value string) ([][]byte, error) {
	var sigs [][]byte
	limit := maxCandidates
	if l.spec.alg == algEd25519 {
		limit = maxEdCandidates
	}
	for item := range strings.SplitSeq(value, " ") {
		tag, text, _ := strings.Cut(item, ",")
		if tag != l.prefix {
			continue
		}
		if sig, ok := l.decode(text); ok {
			sigs = append(sigs, sig)
		}
		if len(sigs) > limit {
			return nil, l.fail(ReasonMalformed, l.sigHeader, "has more than "+strconv.Itoa(limit)+" signatures")
		}
	}
	if len(sigs) == 0 {
		return nil, l.fail(ReasonMalformed, l.sigHeader, "has no "+l.prefix+" signature of "+l.expects())
	}
	return sigs, nil
}

// parseStripe reads "t=…,v1=…,v1=…". Parts without = and unknown ones (v0) are
// passed over. Two different timestamps are refused: the signed one and the
// one that is checked must be the same.
func (l *layout) parseStripe(env *envelope, value string) error {
	for item := range strings.SplitSeq(value, ",") {
		name, text, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		switch name {
		case "t":
			if env.timestamp != "" && env.timestamp != text {
				return l.fail(ReasonMalformed, l.sigHeader, "has two timestamps")
			}
			env.timestamp = text
		case "v1":
			if sig, ok := l.decode(text); ok {
				env.sigs = append(env.sigs, sig)
			}
			if len(env.sigs) > maxCandidates {
				return l.fail(ReasonMalformed, l.sigHeader, "has more than "+strconv.Itoa(maxCandidates)+" signatures")
			}
		}
	}
	if env.timestamp == "" {
		return l.fail(ReasonMalformed, l.sigHeader, "has no timestamp (t=)")
	}
	if len(env.sigs) == 0 {
		return l.fail(ReasonMalformed, l.sigHeader, "has no v1 signature of "+l.expects())
	}
	return nil
}

func (l *layout) decode(text string) ([]byte, bool) {
	return l.spec.codec.decode(text, l.spec.alg.size())
}

// expects describes a well-formed signature, for messages.
func (l *layout) expects() string {
	return strconv.Itoa(l.spec.alg.size()) + " bytes in " + l.spec.codec.String()
}

// matchAny compares mac with every candidate, all of them always.
func matchAny(mac []byte, candidates [][]byte) bool {
	match := 0
	for _, c := range candidates {
		match |= subtle.ConstantTimeCompare(mac, c)
	}
	return match == 1
}
