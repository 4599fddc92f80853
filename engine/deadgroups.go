package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// DeadGroup is the dead letters of one subscriber that died of the same thing.
type DeadGroup struct {
	Tenant     string
	Subscriber string
	// Signature names the reason and what the last attempt met:
	// "exhausted: status 503", "blocked: policy_literal never".
	Signature   string
	Reason      delivery.Reason
	Count       int
	Bytes       int64     // of their payloads
	First, Last time.Time // of their deaths
	Topics      []string  // some of them
	Example     string    // a delivery's id
}

// DeadGroups are the groups found, the largest first.
type DeadGroups struct {
	Groups []DeadGroup
	// Seen is how many dead letters were looked at. More says that there are
	// others, which were not.
	Seen int
	More bool
}

const (
	// deadGroupMost bounds the dead letters that are looked at for one answer.
	deadGroupMost = 20_000
	// groupTopics is how many topics a group names.
	groupTopics = 5
)

// DeadGroups groups the dead letters that match, at most 20,000 of them.
func (e *Engine) DeadGroups(ctx context.Context, in DeliveryFilter) (DeadGroups, error) {
	in.State = delivery.StateDead.String()
	var out DeadGroups
	groups := map[[3]string]*DeadGroup{}
	page := Page{Limit: listPage}
	for {
		rows, next, err := e.listDeliveries(ctx, in, page)
		if err != nil {
			return DeadGroups{}, err
		}
		for i := range rows {
			key := [3]string{rows[i].Tenant, rows[i].Subscriber, rows[i].Signature}
			g := groups[key]
			if g == nil {
				g = &DeadGroup{
					Tenant: rows[i].Tenant, Subscriber: rows[i].Subscriber, Signature: rows[i].Signature,
					Reason: rows[i].Reason, Example: rows[i].ID,
				}
				groups[key] = g
			}
			g.add(&rows[i])
		}
		out.Seen += len(rows)
		if page.Cursor = next; next == "" || out.Seen >= deadGroupMost {
			break
		}
	}
	out.More = page.Cursor != ""
	for _, g := range groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b DeadGroup) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), strings.Compare(a.Tenant, b.Tenant),
			strings.Compare(a.Subscriber, b.Subscriber), strings.Compare(a.Signature, b.Signature))
	})
	return out, nil
}

func (g *DeadGroup) add(d *DeliveryInfo) {
	g.Count++
	if g.First.IsZero() || d.UpdatedAt.Before(g.First) {
		g.First = d.UpdatedAt
	}
	if d.UpdatedAt.After(g.Last) {
		g.Last = d.UpdatedAt
	}
	if d.Event == nil {
		return
	}
	g.Bytes += d.Event.Size
	if len(g.Topics) < groupTopics && !slices.Contains(g.Topics, d.Event.Topic) {
		g.Topics = append(g.Topics, d.Event.Topic)
	}
}
