package storage

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Bounds of a document's key.
const (
	MaxDocKind = 64   // bytes
	MaxDocID   = 1024 // bytes
)

// DocKey names a document: a record whose content is another package's business
// (ingress sources, protocol pins and memory, API tokens).
type DocKey struct {
	Tenant delivery.TenantNum // owner: it is deleted with the tenant; 0 = the node
	Kind   string             // 1 to MaxDocKind bytes
	ID     string             // 1 to MaxDocID bytes, unique inside tenant and kind
}

// String returns the key for errors and logs.
func (k DocKey) String() string {
	if k.Tenant == 0 {
		return fmt.Sprintf("%s %q", k.Kind, k.ID)
	}
	return fmt.Sprintf("%s %q of tenant %d", k.Kind, k.ID, k.Tenant)
}

// Doc is a stored document.
type Doc struct {
	Key       DocKey
	Version   uint64 // grows with every write, never repeats, not even after deletion
	UpdatedAt time.Time
	Body      []byte
}

// DocWrite is one change of [Registry.WriteDocs].
type DocWrite struct {
	Key    DocKey
	Body   []byte
	Expect uint64 // the version read, [MustNotExist] or [AnyVersion]
	Sealed bool   // Body is secret: never plain text on the disk
	Delete bool   // remove it; with AnyVersion it need not exist
}

// A document's value is
//
//	version of the form(1) · flags(1) · version(8) · updated at(8) · body, sealed or not
const (
	docVersion    = 1
	docHeader     = 1 + 1 + 8 + 8
	docFlagSealed = 1
)

func (k DocKey) check() error {
	switch {
	case k.Kind == "" || len(k.Kind) > MaxDocKind:
		return fmt.Errorf("document kind has %d bytes, want 1 to %d: %w", len(k.Kind), MaxDocKind, ErrBadRecord)
	case k.ID == "" || len(k.ID) > MaxDocID:
		return fmt.Errorf("document id has %d bytes, want 1 to %d: %w", len(k.ID), MaxDocID, ErrBadRecord)
	}
	return nil
}

// PutDoc creates or replaces a document and returns its new version. expect is
// the version that the caller read, [MustNotExist] or [AnyVersion]. With sealed,
// body never lies on the disk as plain text.
func (r *Registry) PutDoc(key DocKey, body []byte, expect uint64, sealed bool) (uint64, error) {
	return r.WriteDocs([]DocWrite{{Key: key, Body: body, Expect: expect, Sealed: sealed}})
}

// DeleteDoc removes a document. With [AnyVersion] it need not exist.
func (r *Registry) DeleteDoc(key DocKey, expect uint64) error {
	_, err := r.WriteDocs([]DocWrite{{Key: key, Expect: expect, Delete: true}})
	return err
}

// WriteDocs makes all the changes in one synced batch or, on an error, none. It
// returns the version that the written documents now have.
func (r *Registry) WriteDocs(writes []DocWrite) (version uint64, err error) {
	err = r.write(func(tx *registryTx) error {
		tx.counters.revision++
		version = tx.counters.revision
		for _, w := range writes {
			if err := tx.writeDoc(w, version); err != nil {
				return fmt.Errorf("write %v: %w", w.Key, err)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

func (tx *registryTx) writeDoc(w DocWrite, version uint64) error {
	if err := w.Key.check(); err != nil {
		return err
	}
	if w.Key.Tenant != 0 {
		if err := checkTenant(tx.b, w.Key.Tenant); err != nil {
			return err
		}
	}
	key := keyDoc(w.Key)
	if err := tx.checkDoc(w, key); err != nil {
		return err
	}
	tx.changed(Change{Tenant: w.Key.Tenant, Doc: w.Key, Deleted: w.Delete})
	if w.Delete {
		return tx.delete(key)
	}
	value := make([]byte, docHeader, docHeader+len(w.Body)+sealOverhead)
	value[0] = docVersion
	binary.BigEndian.PutUint64(value[2:], version)
	binary.BigEndian.PutUint64(value[10:], uint64(tx.now.UnixMilli())) //nolint:gosec // after 1970
	if w.Sealed {
		value[1] = docFlagSealed
		return tx.set(key, tx.seal.seal(value, w.Body, key))
	}
	return tx.set(key, append(value, w.Body...))
}

// checkDoc compares what w expects with what is stored. Only the header is
// read, so that a document whose key is lost can be replaced.
func (tx *registryTx) checkDoc(w DocWrite, key []byte) error {
	if w.Expect == AnyVersion {
		return nil
	}
	value, ok, err := getFrom(tx.b, key)
	if err != nil {
		return err
	}
	if !ok {
		if w.Expect == MustNotExist && !w.Delete {
			return nil
		}
		return ErrNoDoc
	}
	d, _, err := splitDoc(w.Key, value)
	if err != nil {
		return err
	}
	return checkVersion(w.Expect, d.Version)
}

// GetDoc returns a document, or [ErrNoDoc].
func (r *Registry) GetDoc(key DocKey) (Doc, error) {
	if err := key.check(); err != nil {
		return Doc{}, fmt.Errorf("get %v: %w", key, err)
	}
	value, ok, err := r.kv.get(keyDoc(key))
	if err == nil && !ok {
		err = ErrNoDoc
	}
	if err != nil {
		return Doc{}, fmt.Errorf("get %v: %w", key, err)
	}
	d, err := r.decodeDoc(key, value)
	if err != nil {
		return Doc{}, fmt.Errorf("get %v: %w", key, err)
	}
	return d, nil
}

// decodeDoc reads a stored value, of which it keeps no part. If only the body
// cannot be opened, it returns the rest together with the error.
func (r *Registry) decodeDoc(key DocKey, value []byte) (Doc, error) {
	d, flags, err := splitDoc(key, value)
	if err != nil {
		return Doc{Key: key}, err
	}
	if flags&docFlagSealed == 0 {
		d.Body = append([]byte(nil), value[docHeader:]...)
		return d, nil
	}
	d.Body, err = r.seal.open(value[docHeader:], keyDoc(key))
	return d, err
}

func splitDoc(key DocKey, value []byte) (d Doc, flags byte, err error) {
	if len(value) < docHeader || value[0] != docVersion || value[1]&^docFlagSealed != 0 {
		return Doc{}, 0, fmt.Errorf("%d bytes of unknown form: %w", len(value), ErrDamaged)
	}
	at, err := decodeMilli(value[10:docHeader])
	return Doc{Key: key, Version: binary.BigEndian.Uint64(value[2:]), UpdatedAt: at}, value[1], err
}

// ListDocs returns a page of a tenant's documents of one kind in the order of
// their ids, those after the id given first; next is "" at the end. Tenant 0 is
// the node.
func (r *Registry) ListDocs(tenant delivery.TenantNum, kind, after string, limit int) (page []Listed[Doc], next string, err error) {
	if kind == "" || len(kind) > MaxDocKind {
		return nil, "", fmt.Errorf("list documents: kind has %d bytes, want 1 to %d: %w", len(kind), MaxDocKind, ErrBadRecord)
	}
	err = r.read(func(db *pebble.DB) error {
		next, err = eachID(db, keyDocKind(tenant, kind), after, limit, func(id string, value []byte) error {
			d, err := r.decodeDoc(DocKey{tenant, kind, id}, value)
			page = append(page, Listed[Doc]{d, err})
			return nil
		})
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list documents: %w", err)
	}
	return page, next, nil
}
