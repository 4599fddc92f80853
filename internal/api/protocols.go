package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// Protocols is the protocol memory's part of [Node].
type Protocols interface {
	Protocols(ctx context.Context, page engine.Page) ([]engine.ProtocolRow, string, error)
	Protocol(ctx context.Context, authority string) ([]engine.ProtocolRow, engine.ProtocolPin, error)
	PinProtocol(ctx context.Context, authority, protocol string, ttl time.Duration) (engine.ProtocolPin, error)
	ForgetProtocol(ctx context.Context, authority string) error
	ProbeProtocol(ctx context.Context, authority string) (engine.ProbeResult, error)
}

// OriginPath names an origin in a path.
type OriginPath struct {
	Origin string `path:"origin" doc:"host:port" maxLength:"300"`
}

// Origin is what is known about one route of an origin.
type Origin struct {
	Origin       string        `json:"origin" doc:"host:port"`
	Scheme       string        `json:"scheme" doc:"https, or http where there is no protocol to choose"`
	Identity     string        `json:"tls_identity,omitempty" doc:"fingerprint of the CA and client certificate; absent = system roots"`
	Egress       string        `json:"egress,omitempty" doc:"address that it is reached from; absent = any"`
	State        string        `json:"state" doc:"what a delivery would find now: unknown, advertised, confirmed, suspect, broken, half_open, disabled"`
	Pin          *Pin          `json:"pin,omitempty" doc:"an operator's word, which counts before all else"`
	Alternatives []Alternative `json:"alternatives" doc:"who speaks HTTP/3 for it"`
	TCPRTTMillis float64       `json:"tcp_rtt_ms,omitempty" doc:"round trip time over TCP"`
	HTTPSRecord  string        `json:"https_record,omitempty" doc:"the last lookup, in one line"`
	Attempts     ByProtocol    `json:"answers" doc:"answers by protocol"`
	Refusals     uint64        `json:"refusals" doc:"requests refused as unprocessed"`
	Distrusted   bool          `json:"distrusted,omitempty" doc:"it refused what it had processed: its refusals are not resent any more"`
}

// ByProtocol counts by protocol.
type ByProtocol struct {
	H1 uint64 `json:"h1" doc:"over HTTP/1.1"`
	H2 uint64 `json:"h2" doc:"over HTTP/2"`
	H3 uint64 `json:"h3" doc:"over HTTP/3"`
}

// Alternative is what is known about one HTTP/3 alternative.
type Alternative struct {
	Authority    string  `json:"authority" doc:"host:port that speaks HTTP/3 for the origin"`
	State        string  `json:"state" doc:"as of the origin"`
	Source       string  `json:"source" doc:"who advertised it"`
	ExpiresAt    *string `json:"expires_at,omitempty" format:"date-time" doc:"until when the advertisement holds"`
	ConfirmedAt  *string `json:"confirmed_at,omitempty" format:"date-time" doc:"last answer over HTTP/3"`
	BrokenReason string  `json:"broken_reason,omitempty" doc:"what it was found broken by"`
	BrokenClass  string  `json:"broken_class,omitempty" doc:"how long such a breakage lasts"`
	BrokenUntil  *string `json:"broken_until,omitempty" format:"date-time" doc:"when it is tried again"`
	Breakages    int     `json:"breakages" doc:"in a row"`
	RTTMillis    float64 `json:"rtt_ms,omitempty" doc:"smoothed round trip time"`
	Wins         uint64  `json:"races_won" doc:"connection races against TCP"`
	Losses       uint64  `json:"races_lost" doc:"connection races against TCP"`
	Answers      uint64  `json:"answers" doc:"requests that it answered"`
	Failures     uint64  `json:"failures" doc:"requests that it did not answer"`
}

// Pin is an operator's word about one origin.
type Pin struct {
	Protocol string  `json:"protocol" enum:"h3,tcp,auto" doc:"the protocol of every request"`
	Until    *string `json:"until,omitempty" format:"date-time" doc:"absent = until it is forgotten"`
}

// OriginDetail is an origin's routes and its pin.
type OriginDetail struct {
	Pin  *Pin     `json:"pin,omitempty" doc:"an operator's word, which counts before all else"`
	Data []Origin `json:"data" doc:"its routes"`
}

// Probe is what a probe found.
type Probe struct {
	HTTPSRecord string       `json:"https_record,omitempty" doc:"what DNS says, in one line"`
	TCP         ProbedDial   `json:"tcp" doc:"the handshake over TCP"`
	HTTP3       []ProbedDial `json:"h3" doc:"a handshake with each alternative"`
}

// ProbedDial is one handshake of a probe.
type ProbedDial struct {
	Authority  string  `json:"authority" doc:"host:port"`
	Protocol   string  `json:"protocol" doc:"what came up; none = nothing"`
	Verdict    string  `json:"verdict" doc:"up, or what stood in the way"`
	Detail     string  `json:"detail,omitempty" doc:"in words"`
	TookMillis float64 `json:"took_ms" doc:"milliseconds"`
	Reused     bool    `json:"reused_connection,omitempty" doc:"it was open already"`
	Remote     string  `json:"remote,omitempty" doc:"address and port"`
}

type pinOrigin struct {
	OriginPath
	Body struct {
		Protocol string   `json:"protocol" enum:"h3,tcp,auto" doc:"h3 does not fall back: that is what it is for"`
		TTL      Duration `json:"ttl,omitempty" doc:"default: until it is forgotten"`
	}
}

const originPath = "/v1/protocols/{origin}"

func (s *Server) registerProtocols() {
	list := operation(http.MethodGet, "/v1/protocols", "list-protocols", "List what is known about origins", http.StatusOK)
	huma.Register(s.api, list, func(ctx context.Context, in *PageQuery) (*pageOf[Origin], error) {
		rows, next, err := s.node.Protocols(ctx, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return newPage(mapped(rows, originOut), next), nil
	})
	get := operation(http.MethodGet, originPath, "get-protocol", "Show what is known about an origin", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, get, func(ctx context.Context, in *OriginPath) (*bodyOf[OriginDetail], error) {
		rows, pin, err := s.node.Protocol(ctx, in.Origin)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(OriginDetail{Pin: pinOut(pin), Data: mapped(rows, originOut)}), nil
	})
	put := operation(http.MethodPut, originPath, "pin-protocol", "Pin an origin to a protocol", http.StatusOK)
	huma.Register(s.api, put, func(ctx context.Context, in *pinOrigin) (*bodyOf[Pin], error) {
		pin, err := s.node.PinProtocol(ctx, in.Origin, in.Body.Protocol, durationOf(in.Body.TTL))
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(orZero(pinOut(pin))), nil
	})
	remove := operation(http.MethodDelete, originPath, "forget-protocol", "Forget an origin, its pin included", http.StatusNoContent)
	huma.Register(s.api, remove, func(ctx context.Context, in *OriginPath) (*struct{}, error) {
		if err := s.node.ForgetProtocol(ctx, in.Origin); err != nil {
			return nil, problemFor(err, s.logger)
		}
		return nil, nil //nolint:nilnil // 204 has no body
	})
	probe := operation(http.MethodPost, originPath+"/probe", "probe-protocol", "Make handshakes with an origin and its alternatives", http.StatusOK)
	huma.Register(s.api, probe, func(ctx context.Context, in *OriginPath) (*bodyOf[Probe], error) {
		result, err := s.node.ProbeProtocol(ctx, in.Origin)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(probeOut(result)), nil
	})
}
