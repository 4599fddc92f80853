package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// Replays is the part of [Node] about bulk replays that need no request: they go
// on over restarts.
type Replays interface {
	StartReplay(ctx context.Context, f engine.DeliveryFilter, perSecond float64) (engine.ReplayJob, error)
	GetReplay(ctx context.Context, id string) (engine.ReplayJob, error)
	// ListReplays returns the newest first; tenant "" = all.
	ListReplays(ctx context.Context, tenant string, page engine.Page) ([]engine.ReplayJob, string, error)
	CancelReplay(ctx context.Context, id string) (engine.ReplayJob, error)
}

// ReplayPath names a replay in a path.
type ReplayPath struct {
	ID string `path:"id" doc:"replay id" maxLength:"64" pattern:"^[a-z0-9]+$"`
}

// Replay is a bulk replay on the wire.
type Replay struct {
	ID         string  `json:"id" doc:"begins with the millisecond it was made in"`
	State      string  `json:"state" enum:"pending,running,done,canceled,failed" doc:"pending: four others run, or the node is starting"`
	Failure    string  `json:"failure,omitempty" doc:"with failed: why"`
	Tenant     string  `json:"tenant" doc:"whose dead letters are meant; since deleted, maybe"`
	Subscriber string  `json:"subscriber,omitempty" doc:"only this subscriber's"`
	Reason     string  `json:"reason,omitempty" doc:"only with this reason"`
	Signature  string  `json:"signature,omitempty" doc:"only with this signature"`
	Topic      string  `json:"topic,omitempty" doc:"only topics that match this pattern"`
	Since      *string `json:"since,omitempty" format:"date-time" doc:"accepted at or after"`
	Until      *string `json:"until,omitempty" format:"date-time" doc:"accepted before"`
	PerSecond  float64 `json:"per_second,omitempty" doc:"at most this many a second; absent = no limit"`
	Total      *int    `json:"total,omitempty" doc:"dead letters that matched as it began; absent until they are counted"`
	Replayed   int     `json:"replayed" doc:"sent to their queues again"`
	PassedOver int     `json:"passed_over" doc:"found, and left alone: replayed or purged by somebody else meanwhile, or without a payload or a subscriber"`
	CreatedAt  *string `json:"created_at,omitempty" format:"date-time" doc:"what was dead at that time is replayed"`
	StartedAt  *string `json:"started_at,omitempty" format:"date-time" doc:"its dead letters were counted, and the first page went; absent before"`
	EndedAt    *string `json:"ended_at,omitempty" format:"date-time" doc:"absent before"`
}

func replayOut(j engine.ReplayJob) Replay {
	out := Replay{
		ID: j.ID, State: string(j.State), Failure: j.Why, Tenant: j.Filter.Tenant, Subscriber: j.Filter.Subscriber,
		Reason: j.Filter.Reason, Signature: j.Filter.Signature, Topic: j.Filter.Topic, Since: rfc3339(j.Filter.Since), Until: rfc3339(j.Filter.Until),
		PerSecond: j.PerSecond, Replayed: j.Replayed, PassedOver: j.PassedOver,
		CreatedAt: rfc3339(j.CreatedAt), StartedAt: rfc3339(j.StartedAt), EndedAt: rfc3339(j.EndedAt),
	}
	if j.Counted {
		out.Total = &j.Total
	}
	return out
}

type (
	startReplay struct {
		Body struct {
			DeliveryFilter
			PerSecond float64 `json:"per_second,omitempty" minimum:"0" maximum:"100000" doc:"at most this many a second; 0 = no limit"`
		}
	}
	replayList struct {
		Tenant string `query:"tenant" doc:"only this tenant's"`
		PageQuery
	}
)

const replaysPath = "/v1/replays"

func (s *Server) registerReplays() {
	list := operation(http.MethodGet, replaysPath, "list-replays", "List bulk replays, the newest first; of those that ended, the last hundred", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, list, func(ctx context.Context, in *replayList) (*pageOf[Replay], error) {
		rows, next, err := s.node.ListReplays(ctx, in.Tenant, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return newPage(mapped(rows, replayOut), next), nil
	})
	get := operation(http.MethodGet, replaysPath+"/{id}", "get-replay", "Show a bulk replay and how far it has come", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, get, func(ctx context.Context, in *ReplayPath) (*bodyOf[Replay], error) {
		job, err := s.node.GetReplay(ctx, in.ID)
		if err == nil && (!mine(ctx, job.Filter.Tenant) || job.TenantGone && callerOf(ctx).Tenant != "") {
			err = fmt.Errorf("replay %q: %w", clip(in.ID), engine.ErrNotFound)
		}
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(replayOut(job)), nil
	})
	s.registerReplayChanges()
}

func (s *Server) registerReplayChanges() {
	start := operation(http.MethodPost, replaysPath, "start-replay", "Replay the dead letters that match in the background, over restarts", http.StatusAccepted, http.StatusNotFound, http.StatusConflict)
	huma.Register(s.api, start, func(ctx context.Context, in *startReplay) (*bodyOf[Replay], error) {
		filter, err := in.Body.filter()
		if err != nil {
			return nil, err
		}
		job, err := s.node.StartReplay(ctx, filter, in.Body.PerSecond)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		s.audit(ctx, "replay_started", "replay", job.ID, "tenant", filter.Tenant, "subscriber", filter.Subscriber)
		return &bodyOf[Replay]{Status: http.StatusAccepted, Body: replayOut(job)}, nil
	})
	cancel := operation(http.MethodPost, replaysPath+"/{id}/cancel", "cancel-replay", "End a bulk replay; what it replayed stays replayed", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, cancel, func(ctx context.Context, in *ReplayPath) (*bodyOf[Replay], error) {
		job, err := s.node.CancelReplay(ctx, in.ID)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		s.audit(ctx, "replay_canceled", "replay", job.ID, "replayed", job.Replayed)
		return ok(replayOut(job)), nil
	})
}
