package transport

import (
	"errors"
	"net"
	"strings"
)

// net/http keeps the errors of its HTTP/2 stack to itself. A stream error can be
// taken out by its shape; the rest has only its text. The tests pin both with a
// peer that provokes each of them, and a text that changes makes a refusal
// ambiguous, never the reverse.
const (
	http2RefusedStream = 0x7 // RFC 9113 section 7
	http2FromPeer      = "received from peer"

	// The connection had ended before its first request, for whatever reason.
	http2NotEstablished = "http2: client conn could not be established"

	// Streams above the id of a GOAWAY: the peer "will not process" them
	// (RFC 9113 section 6.8). The second is what the stack makes of it when the
	// GOAWAY carries an error and hits the first request of a connection.
	http2GoAwayGraceful = "http2: Transport received Server's graceful shutdown GOAWAY"
	http2GoAwayFirst    = "http2: Transport received GOAWAY from server ErrCode:"
)

// http2StreamError has the fields of net/http's own type, which converts itself
// into any struct that looks like it.
type http2StreamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error implements error, so that it can be a target of errors.As.
func (e http2StreamError) Error() string { return "http2 stream error" }

func asHTTP2StreamError(err error) (http2StreamError, bool) {
	return errors.AsType[http2StreamError](err)
}

// http2Ended finds an end of the connection of which the peer may have told the
// reason, in an alert that the stack has not passed on. After these errors it
// closes the connection by itself.
func http2Ended(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "write" || err.Error() == http2NotEstablished
}

// http2GoAwayExcludes reports whether a GOAWAY says that the request was not
// processed. The stack gives these errors to exactly the streams above the
// GOAWAY's id; those below get another one when the connection ends.
func http2GoAwayExcludes(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return text == http2GoAwayGraceful || strings.HasPrefix(text, http2GoAwayFirst)
}
