package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// DeadGroup is the dead letters of one subscriber that died of the same thing.
type DeadGroup struct {
	Tenant     string   `json:"tenant" doc:"whose they are"`
	Subscriber string   `json:"subscriber" doc:"whom they did not reach"`
	Signature  string   `json:"signature" doc:"reason and what the last attempt met; filter lists and replays by it"`
	Reason     string   `json:"reason" doc:"why they were given up"`
	Count      int      `json:"count" doc:"how many"`
	Bytes      int64    `json:"bytes" doc:"of their payloads"`
	First      *string  `json:"first,omitempty" format:"date-time" doc:"the first of them died"`
	Last       *string  `json:"last,omitempty" format:"date-time" doc:"the last of them died"`
	Topics     []string `json:"topics" doc:"some of their topics"`
	Example    string   `json:"example" doc:"the delivery id of one of them"`
}

// DeadGroupsAnswer is what the groups of dead letters are.
type DeadGroupsAnswer struct {
	Data []DeadGroup `json:"data" doc:"the largest first"`
	Seen int         `json:"seen" doc:"dead letters that were looked at"`
	More bool        `json:"more" doc:"there are others, which were not looked at: narrow the filter"`
}

type deadGroupsQuery struct {
	Tenant     string `query:"tenant" doc:"only this tenant's"`
	Subscriber string `query:"subscriber" doc:"only this subscriber's; needs tenant"`
	Reason     string `query:"reason" doc:"only with this reason"`
	Signature  string `query:"signature" doc:"only with this signature"`
	Topic      string `query:"topic" doc:"only topics that match this pattern"`
	Since      string `query:"since" format:"date-time" doc:"accepted at or after"`
	Until      string `query:"until" format:"date-time" doc:"accepted before"`
}

func (q *deadGroupsQuery) filter() (engine.DeliveryFilter, error) {
	return DeliveryFilter{
		Tenant: q.Tenant, Subscriber: q.Subscriber, Reason: q.Reason, Signature: q.Signature, Topic: q.Topic, Since: q.Since, Until: q.Until,
	}.filter()
}

func (s *Server) registerDeadGroups() {
	groups := operation(http.MethodGet, "/v1/dlq/groups", "group-dead", "Group dead letters by what they died of", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, groups, func(ctx context.Context, in *deadGroupsQuery) (*bodyOf[DeadGroupsAnswer], error) {
		filter, err := in.filter()
		if err != nil {
			return nil, err
		}
		found, err := s.node.DeadGroups(ctx, filter)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(DeadGroupsAnswer{Data: mapped(found.Groups, deadGroupOut), Seen: found.Seen, More: found.More}), nil
	})
}

func deadGroupOut(g engine.DeadGroup) DeadGroup {
	return DeadGroup{
		Tenant: g.Tenant, Subscriber: g.Subscriber, Signature: g.Signature, Reason: g.Reason.String(), Count: g.Count, Bytes: g.Bytes,
		First: rfc3339(g.First), Last: rfc3339(g.Last), Topics: append([]string{}, g.Topics...), Example: g.Example,
	}
}
