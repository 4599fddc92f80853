package engine

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What a list shows can be looked at and forgotten by the name it is shown by,
// an origin over plain HTTP too.
func TestWhatTheProtocolListShowsCanBeShownAndForgotten(t *testing.T) {
	b := setup(t)
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(plain.Close)
	id := "s"
	if _, err := b.CreateSubscriber(t.Context(), "t", SubscriberInput{ID: &id, URL: &plain.URL}); err != nil {
		t.Fatal(err)
	}
	b.publish("e1")
	var rows []ProtocolRow
	b.eventually("the origin is listed", func() bool {
		rows, _, _ = b.Protocols(t.Context(), Page{})
		return len(rows) == 1
	})
	authority := strings.TrimPrefix(plain.URL, "http://")
	if o := rows[0].Route.Origin; o.Scheme != "http" || o.Authority() != authority {
		t.Fatalf("listed: %v", o)
	}
	if rows, pin, err := b.Protocol(t.Context(), authority); err != nil || len(rows) != 1 || pin != (ProtocolPin{}) {
		t.Errorf("shown: %v %v %v", rows, pin, err)
	}
	if err := b.ForgetProtocol(t.Context(), authority); err != nil {
		t.Errorf("forgotten: %v", err)
	}
	if _, _, err := b.Protocol(t.Context(), authority); !errors.Is(err, ErrNotFound) {
		t.Errorf("shown once forgotten: %v", err)
	}
}
