package fault

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Fault is a kind with its parameters. The zero value is no fault; ParseFault
// makes one.
type Fault struct {
	kind   *Kind
	values map[string]value
}

// value is a parameter's, read once.
type value struct {
	text  string // as given, decoded
	num   uint64
	dur   time.Duration
	odds  float64
	given bool
}

// ParseFault reads "name" or "name:key=value,key=value", as in
// "h3-reset:code=0x10b,when=after,every=3". Numbers may be hexadecimal, codes
// may have their protocol's names, and free text is percent-encoded. An error
// names what would have been valid.
func ParseFault(spec string) (Fault, error) {
	name, params, _ := strings.Cut(strings.TrimSpace(spec), ":")
	k, ok := Lookup(name)
	if !ok {
		return Fault{}, fmt.Errorf("fault %q: unknown; known are %s", name, strings.Join(Names(), ", "))
	}
	f := Fault{kind: k, values: map[string]value{}}
	for part := range strings.SplitSeq(params, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if err := f.set(part); err != nil {
			return Fault{}, fmt.Errorf("fault %s: %w", name, err)
		}
	}
	f.fillIn()
	return f, nil
}

// ParseFaults reads several specs, and reports what is wrong with each.
func ParseFaults(specs ...string) ([]Fault, error) {
	var faults []Fault
	var errs []error
	for _, spec := range specs {
		f, err := ParseFault(spec)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		faults = append(faults, f)
	}
	return faults, errors.Join(errs...)
}

func (f Fault) set(part string) error {
	key, text, _ := strings.Cut(part, "=")
	p, ok := f.kind.param(key)
	if !ok {
		return fmt.Errorf("no parameter %q; it has %s", key, f.kind.paramNames())
	}
	if f.values[key].given {
		return fmt.Errorf("%s is given twice", key)
	}
	v, err := p.parse(text)
	if err != nil {
		return fmt.Errorf("%s=%s: %w", key, text, err)
	}
	v.given = true
	f.values[key] = v
	return nil
}

// fillIn sets what was not given. The defaults are the package's own.
func (f Fault) fillIn() {
	params := f.kind.Params
	if !f.kind.Standing {
		params = slices.Concat(params, common)
	}
	for _, p := range params {
		if _, ok := f.values[p.Name]; ok {
			continue
		}
		v, err := p.parse(p.Default)
		if err != nil {
			panic(fmt.Sprintf("default of %s: %v", p.Name, err)) // a test reads all kinds
		}
		f.values[p.Name] = v
	}
}

func (p Param) parse(text string) (value, error) {
	v := value{text: text}
	var err error
	switch p.form {
	case formNumber:
		v.num, err = p.number(text)
	case formDuration:
		if v.dur, err = time.ParseDuration(text); err == nil && v.dur < 0 {
			err = errors.New("must not be negative")
		}
	case formWord:
		if !slices.Contains(p.Words, text) {
			err = fmt.Errorf("want %s", strings.Join(p.Words, ", "))
		}
	case formChance:
		if v.odds, err = strconv.ParseFloat(text, 64); err == nil && !(v.odds >= 0 && v.odds <= 1) {
			err = errors.New("want a number from 0 to 1")
		}
	case formText:
		v.text, err = url.PathUnescape(text)
	}
	return v, err
}

// maxNumber is QUIC's largest (RFC 9000 section 16): codes end there, and no
// count needs more.
const maxNumber = 1<<62 - 1

func (p Param) number(text string) (uint64, error) {
	if n, ok := p.Codes[text]; ok {
		return n, nil
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil || n > maxNumber {
		return 0, fmt.Errorf("want a number%s", p.codeNames())
	}
	return n, nil
}

func (p Param) codeNames() string {
	if len(p.Codes) == 0 {
		return ""
	}
	var names []string
	for name := range p.Codes {
		names = append(names, name)
	}
	slices.Sort(names)
	return ", or one of " + strings.Join(names, ", ")
}

// Kind returns the fault's kind, nil for the zero value.
func (f Fault) Kind() *Kind { return f.kind }

// Applies reports whether the fault can happen over a protocol.
func (f Fault) Applies(p delivery.Protocol) bool { return f.kind != nil && f.kind.Applies(p) }

// Warmup returns how many healthy requests go before the first that can meet the
// fault.
func (f Fault) Warmup() int {
	n := f.count("after")
	if f.at() == atReuse {
		n++ // the request that the connection is reused after
	}
	return n
}

// String returns a spec that parses to the same fault: what was given, in the
// list's order.
func (f Fault) String() string {
	if f.kind == nil {
		return ""
	}
	var parts []string
	for _, p := range slices.Concat(f.kind.Params, common) {
		v := f.values[p.Name]
		if !v.given {
			continue
		}
		text := v.text
		if p.form == formText {
			text = url.PathEscape(text)
			text = strings.ReplaceAll(text, ",", "%2C")
		}
		parts = append(parts, p.Name+"="+text)
	}
	if len(parts) == 0 {
		return f.kind.Name
	}
	return f.kind.Name + ":" + strings.Join(parts, ",")
}

func (f Fault) num(name string) uint64        { return f.values[name].num }
func (f Fault) count(name string) int         { return int(min(f.values[name].num, math.MaxInt32)) } //nolint:gosec // bounded
func (f Fault) dur(name string) time.Duration { return f.values[name].dur }
func (f Fault) word(name string) string       { return f.values[name].text }
func (f Fault) is(name, word string) bool     { return f.values[name].text == word }
func (f Fault) at() point {
	if f.kind.at == nil {
		return atRequest
	}
	return f.kind.at(f)
}
