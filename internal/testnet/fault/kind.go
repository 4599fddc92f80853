package fault

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Kind is one fault of the closed list.
type Kind struct {
	// Name is what a spec begins with.
	Name string
	// Doc is one line for the help.
	Doc string
	// Protocols are those that it applies to.
	Protocols []delivery.Protocol
	// Params are its own parameters; [CommonParams] go with every kind.
	Params []Param
	// Cases are the ones whose outcome is fixed.
	Cases []Case
	// Standing: it holds from Start to Close, so triggers do not apply.
	Standing bool

	// at says when it acts; nil = at a request.
	at func(Fault) point
	// act does it, at a request or after its answer.
	act func(*exchange, Fault)
	// hit does it, after a handshake.
	hit func(connection, Fault)
}

// Applies reports whether the kind can happen over a protocol.
func (k *Kind) Applies(p delivery.Protocol) bool { return slices.Contains(k.Protocols, p) }

// Param is a parameter of a fault.
type Param struct {
	// Name is its key.
	Name string
	// Doc says what it means.
	Doc string
	// Default is its value when it is not given.
	Default string
	// Words are all the values it can have; nil = it is not a word.
	Words []string
	// Codes are names that stand for numbers.
	Codes map[string]uint64

	form form
}

// form is what a parameter's value looks like.
type form uint8

const (
	formNumber form = iota
	formDuration
	formWord
	formChance // 0 to 1
	formText   // percent-encoded
)

// point is a moment at which a fault can act.
type point uint8

const (
	atRequest   point = iota // a request's headers are in
	atPacket                 // a connection's first packet came; TCP: it was accepted
	atHello                  // a TLS ClientHello came
	atHandshake              // the handshake is complete
	atReuse                  // HTTP/1.1: before a further request is read
	atIdle                   // a healthy answer has been sent
	atStart                  // for as long as the server runs
)

// common parameters say which requests, or connections, a fault is for.
var common = []Param{
	{Name: "after", Doc: "so many stay healthy first", Default: "0"},
	{Name: "every", Doc: "then each n-th fails", Default: "1"},
	{Name: "times", Doc: "so many fail in all, 0 = no end", Default: "0"},
	{Name: "p", Doc: "chance of each, 0 to 1", Default: "1", form: formChance},
	{Name: "seed", Doc: "of p's random numbers", Default: "1"},
}

// CommonParams returns the parameters that every kind has.
func CommonParams() []Param { return slices.Clone(common) }

// Kinds returns the closed list. The values are shared; they are not to be
// changed.
func Kinds() []*Kind { return slices.Clone(kinds()) }

// Lookup returns the kind of a name.
func Lookup(name string) (*Kind, bool) {
	for _, k := range kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return nil, false
}

// Names returns the names of all kinds, for an error or a completion.
func Names() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.Name)
	}
	return names
}

// List returns the help: one line for a kind, and its parameters.
func List() string {
	var b strings.Builder
	for _, k := range kinds() {
		fmt.Fprintf(&b, "%-24s %-8s %s\n", k.Name, protocolList(k.Protocols), k.Doc)
		for _, p := range k.Params {
			fmt.Fprintf(&b, "%-24s %-8s   %s\n", "", "", p.usage())
		}
	}
	b.WriteString("parameters of every fault (of connections where it acts before a request):\n")
	for _, p := range common {
		fmt.Fprintf(&b, "  %s\n", p.usage())
	}
	return b.String()
}

func (p Param) usage() string {
	doc := p.Doc
	if p.Words != nil {
		doc += ": " + strings.Join(p.Words, ", ")
	}
	return fmt.Sprintf("%s=%s (%s)", p.Name, p.Default, doc)
}

func protocolList(ps []delivery.Protocol) string {
	var names []string
	for _, p := range ps {
		names = append(names, p.String())
	}
	return strings.Join(names, ",")
}

// param returns the parameter of that name, a kind's own first.
func (k *Kind) param(name string) (Param, bool) {
	for _, p := range k.Params {
		if p.Name == name {
			return p, true
		}
	}
	if k.Standing {
		return Param{}, false
	}
	for _, p := range common {
		if p.Name == name {
			return p, true
		}
	}
	return Param{}, false
}

// paramNames is for an error.
func (k *Kind) paramNames() string {
	var names []string
	for _, p := range k.Params {
		names = append(names, p.Name)
	}
	if !k.Standing {
		for _, p := range common {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, ", ")
}
