package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// DeliveryPath names a delivery in a path.
type DeliveryPath struct {
	ID string `path:"id" doc:"delivery id: {event key}.{subscriber}" maxLength:"200"`
}

// DeliveryFilter narrows a list, in a query or in a body.
type DeliveryFilter struct {
	Tenant     string `query:"tenant" json:"tenant,omitempty" doc:"only this tenant's"`
	Subscriber string `query:"subscriber" json:"subscriber,omitempty" doc:"only this subscriber's; needs tenant"`
	State      string `query:"state" json:"state,omitempty" enum:"received,leased,attempted,retrying,held,delivered,dead,canceled" doc:"only in this state; with dead, what died last comes first"`
	Reason     string `query:"reason" json:"reason,omitempty" doc:"only with this reason"`
	Signature  string `query:"signature" json:"signature,omitempty" doc:"only dead letters with this signature: what they died of"`
	Topic      string `query:"topic" json:"topic,omitempty" doc:"only topics that match this pattern"`
	Since      string `query:"since" json:"since,omitempty" format:"date-time" doc:"accepted at or after"`
	Until      string `query:"until" json:"until,omitempty" format:"date-time" doc:"accepted before"`
}

func (f DeliveryFilter) filter() (engine.DeliveryFilter, error) {
	out := engine.DeliveryFilter{Tenant: f.Tenant, Subscriber: f.Subscriber, State: f.State, Reason: f.Reason, Topic: f.Topic, Signature: f.Signature}
	var err error
	if out.Since, err = instant("since", f.Since); err != nil {
		return out, err
	}
	out.Until, err = instant("until", f.Until)
	return out, err
}

func instant(field, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return at, invalid(engine.FieldError{Field: field, Value: clip(s), Rule: "an RFC 3339 time", Hint: hintTime})
	}
	return at, nil
}

// replayBody says which deliveries to replay and how fast.
type replayBody struct {
	Since     string  `json:"since,omitempty" format:"date-time" doc:"accepted at or after"`
	Until     string  `json:"until,omitempty" format:"date-time" doc:"accepted before"`
	PerSecond float64 `json:"per_second,omitempty" minimum:"0" doc:"at most this many a second; 0 = no limit"`
	Force     bool    `json:"force,omitempty" doc:"delivered ones too"`
	Limit     int     `json:"limit,omitempty" minimum:"0" doc:"stop after this many; 0 = all"`
	Cursor    string  `json:"cursor,omitempty" doc:"go on: next_cursor of a replay that its limit stopped"`
}

func (b replayBody) input() (engine.ReplayInput, error) {
	in := engine.ReplayInput{PerSecond: b.PerSecond, Force: b.Force, Limit: b.Limit, Cursor: b.Cursor}
	var err error
	if in.Since, err = instant("since", b.Since); err != nil {
		return in, err
	}
	in.Until, err = instant("until", b.Until)
	return in, err
}

// ReplayAnswer tells what a bulk replay did.
type ReplayAnswer struct {
	Replayed   int    `json:"replayed" doc:"how many"`
	NextCursor string `json:"next_cursor" doc:"not empty when limit stopped it"`
}

type forceBody struct {
	Force bool `json:"force,omitempty" doc:"replay a delivered one too"`
}

type (
	deliveryList struct {
		DeliveryFilter
		PageQuery
	}
	replayOne struct {
		DeliveryPath
		Body *forceBody
	}
	replayMany struct {
		Body struct {
			DeliveryFilter
			PerSecond float64 `json:"per_second,omitempty" minimum:"0" doc:"at most this many a second; 0 = no limit"`
			Limit     int     `json:"limit,omitempty" minimum:"0" doc:"stop after this many; 0 = all"`
			Cursor    string  `json:"cursor,omitempty" doc:"go on: next_cursor of a replay that its limit stopped"`
		}
	}
	purgeMany struct {
		Body DeliveryFilter
	}
	purged struct {
		Purged int `json:"purged" doc:"how many"`
	}
)

func (s *Server) registerDeliveries() {
	list := operation(http.MethodGet, "/v1/deliveries", "list-deliveries", "List deliveries, newest first", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, list, func(ctx context.Context, in *deliveryList) (*pageOf[Delivery], error) {
		filter, err := in.filter()
		if err != nil {
			return nil, err
		}
		rows, next, err := s.node.ListDeliveries(ctx, filter, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return newPage(mapped(rows, deliveryOut), next), nil
	})
	get := operation(http.MethodGet, "/v1/deliveries/{id}", "get-delivery", "Show a delivery with its timeline", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, get, func(ctx context.Context, in *DeliveryPath) (*bodyOf[DeliveryDetail], error) {
		info, timeline, err := s.node.GetDelivery(ctx, in.ID)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		if !mine(ctx, info.Tenant) {
			return nil, problemFor(fmt.Errorf("delivery %q: %w", clip(in.ID), engine.ErrNotFound), s.logger)
		}
		return ok(DeliveryDetail{Delivery: deliveryOut(info), Timeline: mapped(timeline, entryOut)}), nil
	})
	replay := operation(http.MethodPost, "/v1/deliveries/{id}/replay", "replay-delivery", "Send a dead delivery again, under the same id", http.StatusAccepted, http.StatusNotFound, http.StatusConflict)
	huma.Register(s.api, replay, func(ctx context.Context, in *replayOne) (*bodyOf[Delivery], error) {
		info, err := s.node.ReplayDelivery(ctx, in.ID, orZero(in.Body).Force)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return &bodyOf[Delivery]{Status: http.StatusAccepted, Body: deliveryOut(info)}, nil
	})
	s.registerDeadLetters()
}

func (s *Server) registerDeadLetters() {
	s.registerDeadGroups()
	replay := operation(http.MethodPost, "/v1/dlq/replay", "replay-dead", "Replay the dead letters that match", http.StatusAccepted, http.StatusNotFound)
	huma.Register(s.api, replay, func(ctx context.Context, in *replayMany) (*bodyOf[ReplayAnswer], error) {
		filter, err := in.Body.filter()
		if err != nil {
			return nil, err
		}
		r, err := s.node.ReplayDead(ctx, filter, engine.ReplayInput{PerSecond: in.Body.PerSecond, Limit: in.Body.Limit, Cursor: in.Body.Cursor})
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return &bodyOf[ReplayAnswer]{Status: http.StatusAccepted, Body: ReplayAnswer{Replayed: r.Replayed, NextCursor: r.Cursor}}, nil
	})
	purge := operation(http.MethodPost, "/v1/dlq/purge", "purge-dead", "Remove the dead letters that match, payloads included", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, purge, func(ctx context.Context, in *purgeMany) (*bodyOf[purged], error) {
		filter, err := in.Body.filter()
		if err != nil {
			return nil, err
		}
		n, err := s.node.PurgeDead(ctx, filter)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(purged{Purged: n}), nil
	})
}
