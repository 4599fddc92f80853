package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// Source is an ingress source of a tenant: how its requests are verified and
// where its events go.
type Source struct {
	ID string
	// Subscriber is the id of the subscriber that its origin is; "" with fan-out.
	Subscriber string
	// Config holds the secrets in memory; its JSON masks them.
	Config    *ingress.Source
	UpdatedAt time.Time
}

// sourceKind is the kind of the documents that hold sources.
const sourceKind = "source"

func sourceKey(tenant delivery.TenantNum, id string) storage.DocKey {
	return storage.DocKey{Tenant: tenant, Kind: sourceKind, ID: id}
}

// PutSource makes a source or replaces its settings; raw is the JSON of an
// [ingress.Source]. Secrets that it leaves out stay as they are. It reports
// whether the source is new.
func (e *Engine) PutSource(_ context.Context, tenant, id string, raw json.RawMessage) (*Source, bool, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, false, err
	}
	config, err := ingress.ParseSource(raw)
	if err != nil {
		return nil, false, &InvalidError{Fields: []FieldError{{
			Field: "source", Value: "***", Rule: err.Error(), Hint: "mend the field that is named; docs/api.md has them all under SourceSettings",
		}}}
	}
	e.sources.Lock()
	defer e.sources.Unlock()
	old, version, err := e.readSource(t, id)
	isNew := errors.Is(err, ErrNotFound)
	if err != nil && !isNew {
		return nil, false, err
	}
	var f faults
	f.name("source", id)
	if old != nil {
		config.KeepSecrets(old.Config)
	}
	f.source(e, id, config)
	if err := f.err(); err != nil {
		return nil, false, err
	}
	if err := e.storeSource(t, id, config, version); err != nil {
		return nil, false, err
	}
	stored, _, err := e.readSource(t, id)
	return stored, isNew, err
}

// storeSource writes the source and its origin, in the order in which a crash in
// between leaves no source without its origin. An origin without a source gets no
// events, and goes with the next change.
func (e *Engine) storeSource(t *delivery.Tenant, id string, config *ingress.Source, version uint64) error {
	body, err := config.MarshalStored()
	if err != nil {
		return err
	}
	if config.Destination.Type == ingress.DestinationOrigin {
		if _, err := e.putOrigin(t, id, &config.Destination); err != nil {
			return err
		}
	}
	if _, err := e.registry.PutDoc(sourceKey(t.Num, id), body, version, true); err != nil {
		return e.registryFault("source", id, err)
	}
	if config.Destination.Type != ingress.DestinationOrigin {
		if _, err := e.removeOrigin(t, id); err != nil {
			return err
		}
	}
	e.sourceChanged(t.ID, id)
	return nil
}

// sourceChanged makes the ingress read a source anew, or with "" all of a
// tenant's.
func (e *Engine) sourceChanged(tenant, id string) {
	if e.ingress != nil {
		e.ingress.Forget(tenant, id)
	}
}

// readSource returns a stored source and its version, which is
// [storage.MustNotExist] with [ErrNotFound].
func (e *Engine) readSource(t *delivery.Tenant, id string) (*Source, uint64, error) {
	if delivery.CheckName(id) != nil {
		return nil, storage.MustNotExist, fmt.Errorf("source %q: %w", clipped(id), ErrNotFound)
	}
	doc, err := e.registry.GetDoc(sourceKey(t.Num, id))
	if err != nil {
		return nil, storage.MustNotExist, e.registryFault("source", id, err)
	}
	s, err := sourceOf(doc)
	return s, doc.Version, err
}

func sourceOf(doc storage.Doc) (*Source, error) {
	config, err := ingress.ParseSource(doc.Body)
	if err != nil {
		return nil, fmt.Errorf("stored source %q: %w", doc.Key.ID, err)
	}
	s := &Source{ID: doc.Key.ID, Config: config, UpdatedAt: doc.UpdatedAt}
	if config.Destination.Type == ingress.DestinationOrigin {
		s.Subscriber = originID(s.ID)
	}
	return s, nil
}

// GetSource returns a source.
func (e *Engine) GetSource(_ context.Context, tenant, id string) (*Source, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, err
	}
	s, _, err := e.readSource(t, id)
	return s, err
}

// ListSources returns a page of a tenant's sources in the order of their ids.
func (e *Engine) ListSources(_ context.Context, tenant string, page Page) ([]*Source, string, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, "", err
	}
	rows, next, err := e.registry.ListDocs(t.Num, sourceKind, page.Cursor, page.limit())
	if err != nil {
		return nil, "", e.registryFault("cursor", page.Cursor, err)
	}
	out := make([]*Source, 0, len(rows))
	for _, row := range rows {
		s, err := sourceOf(row.Value)
		if err := errors.Join(row.Err, err); err != nil {
			// It is listed with what is known of it; reading it alone says more.
			e.logger.Error("source_unreadable", "source", row.Value.Key.ID, "error", err.Error())
			s = &Source{ID: row.Value.Key.ID, Config: new(ingress.Source), UpdatedAt: row.Value.UpdatedAt}
		}
		out = append(out, s)
	}
	return out, next, nil
}

// DeleteSource removes a source at once: its URL answers 404. What is pending for
// its origin is canceled; events that were fanned out go on.
func (e *Engine) DeleteSource(_ context.Context, tenant, id string) error {
	t, err := e.tenant(tenant)
	if err != nil {
		return err
	}
	e.sources.Lock()
	defer e.sources.Unlock()
	notFound := e.registry.DeleteDoc(sourceKey(t.Num, id), e.versionOf(t, id))
	if notFound != nil && !errors.Is(notFound, storage.ErrNoDoc) {
		return e.registryFault("source", id, notFound)
	}
	e.sourceChanged(t.ID, id)
	removed, err := e.removeOrigin(t, id)
	if err == nil && notFound != nil && !removed {
		return e.registryFault("source", id, notFound)
	}
	return err
}

// versionOf is what deleting expects: that the source is there, whatever is in
// it, so that a damaged one can be deleted, too.
func (e *Engine) versionOf(t *delivery.Tenant, id string) uint64 {
	doc, err := e.registry.GetDoc(sourceKey(t.Num, id))
	switch {
	case errors.Is(err, storage.ErrNoDoc):
		return storage.MustNotExist
	case err != nil:
		return storage.AnyVersion
	}
	return doc.Version
}

// source checks what the ingress cannot: that the origin may be dialled, and
// what a store and a subscriber can hold.
func (f *faults) source(e *Engine, id string, s *ingress.Source) {
	maxBody := int64(0)
	if e.config.Ingress != nil {
		maxBody = e.config.Ingress.MaxBody
	}
	if invalid, ok := errors.AsType[*ingress.SourceError](s.Validate(maxBody)); ok {
		for _, field := range invalid.Fields {
			*f = append(*f, FieldError(field))
		}
	}
	if len(s.ForwardHeaders) > delivery.MaxEventHeaders {
		f.add("forward_headers", strconv.Itoa(len(s.ForwardHeaders))+" names", fmt.Sprintf("at most %d", delivery.MaxEventHeaders),
			"name those that the receiver needs")
	}
	if s.Destination.Type != ingress.DestinationOrigin || s.Destination.URL == "" {
		return
	}
	if delivery.CheckName(originID(id)) != nil && delivery.CheckName(id) == nil {
		f.add("source", id, fmt.Sprintf("with an origin, at most %d bytes", delivery.MaxNameLen-len(originPrefix)), "choose a shorter id")
	}
	var checked delivery.Subscriber
	var url faults
	url.url(&checked, s.Destination.URL, e.guard)
	for _, field := range url {
		field.Field = "destination.url"
		*f = append(*f, field)
	}
	s.Destination.URL = checked.URL
}
