package protoselect

// State is what the selector believes about one HTTP/3 alternative.
type State uint8

// States of an alternative; doc.go draws how they follow each other.
const (
	StateUnknown    State = 0 // no fresh advert: TCP
	StateAdvertised State = 1 // a fresh advert, no answer over HTTP/3 yet
	StateConfirmed  State = 2 // response HEADERS came over HTTP/3
	StateSuspect    State = 3 // the path stalled, or a connection died after its handshake
	StateBroken     State = 4 // HTTP/3 failed and TCP worked: TCP only until the backoff is over
	StateHalfOpen   State = 5 // backoff over: TCP, one background handshake
	StateDisabled   State = 6 // policy: TCP only
)

var stateNames = [...]string{"unknown", "advertised", "confirmed", "suspect", "broken", "half_open", "disabled"}

// String returns the name that logs, metrics and the API use.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "invalid"
}

// States lists all states, for metric labels.
func States() []State {
	out := make([]State, len(stateNames))
	for i := range out {
		out[i] = State(i) //nolint:gosec // seven states
	}
	return out
}

// Source is where an alternative was learned.
type Source uint8

// Sources, in the order of their authority: the origin's own word over verified
// TLS comes before what unauthenticated DNS says.
const (
	SourceNone        Source = 0
	SourceAltSvc      Source = 1 // Alt-Svc header (RFC 7838)
	SourceHTTPSRecord Source = 2 // DNS HTTPS record (RFC 9460)
	SourceAssumed     Source = 3 // nobody said so: HTTP/3 was demanded by a pin or by the subscriber
)

var sourceNames = [...]string{"none", "alt_svc", "https_record", "assumed"}

// String returns the name that logs, metrics and the API use.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "invalid"
}
