package fault

import "github.com/dispatcher-engine/dispatcher/delivery"

// Fate is what a fault means for the sender's connection.
type Fate uint8

// Fates. A request that failed may be the connection's last for two reasons,
// which a sender tells apart and its peer cannot: dropped and drained are both
// FateGone.
const (
	FateAny  Fate = iota // the design leaves it open
	FateNone             // no connection came up
	FateKeep             // it takes the next request
	FateGone             // nothing new goes over it
)

var fateNames = [...]string{"any", "none", "keep", "gone"}

// String returns the name that docs use.
func (f Fate) String() string {
	if int(f) < len(fateNames) {
		return fateNames[f]
	}
	return "invalid"
}

// Expect is what the design fixes about the outcome of one POST that meets a
// fault, as the sender's transport sees it.
type Expect struct {
	// Sent is the class: N, R, A or P. With Status it is R when the answer
	// itself says "not processed".
	Sent delivery.Sent
	// Early: the fault may overtake the request, which is then never sent.
	Early bool
	// Status is that of the answer; 0 = there is none.
	Status int
	// Broken is what a failure over HTTP/3 says about the alternative.
	Broken delivery.Broken
	// BrokenOpen: it depends on which packet was the last, so it is not fixed.
	BrokenOpen bool
	// Runs is how often the handler runs for one write.
	Runs int
	// Lie: the peer ran its handler and then said that it had not.
	Lie bool
	// Pool is what becomes of the connection.
	Pool Fate
	// Overtakes: QUIC may drop an answer that nobody has read yet for the end that
	// follows it. Then there is none, and Overtaken is the class of the failure.
	Overtakes bool
	Overtaken delivery.Sent
	// Cut: the answer's body is not all that was announced, or too long to keep.
	Cut bool
	// Deadline: nothing but the sender's own deadline ends it.
	Deadline bool
	// Latent: the path may have died after the peer's last sign of life. The
	// connection then takes one more request, which shows it to be dead.
	Latent bool
	// Body is the least length of a request body that the fault bites on.
	Body int
}

// Letter returns the design's letter of the class.
func (e Expect) Letter() string {
	switch e.Sent {
	case delivery.SentNever:
		return "N"
	case delivery.SentRefused:
		return "R"
	case delivery.SentProcessed:
		return "P"
	default:
		return "A"
	}
}

// Case is a fault with parameters whose outcome is fixed.
type Case struct {
	// Params is what follows the colon of a spec.
	Params string
	// On narrows the kind's protocols; nil = all of them.
	On []delivery.Protocol
	// Want is the outcome.
	Want Expect
}

// Row is one line of the matrix: a fault, over one protocol, and what has to
// come of it.
type Row struct {
	Fault    Fault
	Protocol delivery.Protocol
	Want     Expect
}

// String names the row, for a subtest.
func (r Row) String() string { return r.Protocol.String() + "/" + r.Fault.String() }

// Matrix returns every case of every kind over every protocol that it applies
// to. The order is that of [Kinds].
func Matrix() []Row {
	var rows []Row
	for _, k := range Kinds() {
		for _, c := range k.Cases {
			f := mustParse(k.Name + ":" + c.Params)
			on := c.On
			if on == nil {
				on = k.Protocols
			}
			for _, p := range on {
				rows = append(rows, Row{Fault: f, Protocol: p, Want: c.Want})
			}
		}
	}
	return rows
}

// mustParse reads a spec of the package's own tables; a test reads all of them.
func mustParse(spec string) Fault {
	f, err := ParseFault(spec)
	if err != nil {
		panic(err)
	}
	return f
}
