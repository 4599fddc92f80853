package sched

import (
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestOrderDecisions(t *testing.T) {
	tests := []struct {
		name  string
		key   delivery.KeyHash
		place delivery.Place
		first delivery.Seq
		view  orderView
		want  orderDecision
	}{
		{"free rows go, whatever", 0, delivery.PlaceReady, 5, orderView{blocked: true, owned: true}, orderGo},
		{"the first of a key goes", 9, delivery.PlaceReady, 5, orderView{}, orderGo},
		{"the next one waits", 9, delivery.PlaceReady, 6, orderView{owned: true}, orderWait},
		{"behind a head it is parked", 9, delivery.PlaceReady, 6, orderView{blocked: true, head: 5}, orderPark},
		{"also while the head is in flight", 9, delivery.PlaceReady, 6, orderView{blocked: true, head: 5, owned: true}, orderPark},
		{"the head itself goes", 9, delivery.PlaceRetry, 5, orderView{blocked: true, head: 5}, orderHead},
		{"deliver_at of a free key goes", 9, delivery.PlaceRetry, 7, orderView{}, orderGo},
		{"deliver_at behind a head is parked", 9, delivery.PlaceRetry, 7, orderView{blocked: true, head: 5}, orderPark},
		{"parked rows go when their head is gone", 9, delivery.PlaceParked, 6, orderView{blocked: true, head: 5}, orderGo},
		{"one by one", 9, delivery.PlaceParked, 7, orderView{blocked: true, head: 5, owned: true}, orderWait},
		{"strict leaves rows where they are", 1, delivery.PlaceReady, 6, orderView{blocked: true, head: 5, strict: true}, orderHold},
		{"strict: the head goes", 1, delivery.PlaceRetry, 5, orderView{blocked: true, head: 5, strict: true}, orderHead},
	}
	for _, tt := range tests {
		if got := orderRow(tt.key, tt.place, tt.first, tt.view); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
