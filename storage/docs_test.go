package storage

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestDocumentsAreWrittenReadAndRemoved(t *testing.T) {
	b := newRegistryBench(t)
	for _, sealed := range []bool{false, true} {
		key := DocKey{Kind: "protocol", ID: "h.example:443"}
		body := []byte("state of the origin")
		v1, err := b.PutDoc(key, body, MustNotExist, sealed)
		noErr(t, err)
		body[0] = 'X' // the caller's memory is its own
		b.reopen()
		got, err := b.GetDoc(key)
		noErr(t, err)
		if got.Key != key || got.Version != v1 || string(got.Body) != "state of the origin" || got.UpdatedAt.IsZero() {
			t.Errorf("sealed %v: got %+v", sealed, got)
		}
		_, err = b.PutDoc(key, nil, MustNotExist, sealed)
		wantErr(t, err, ErrExists)
		v2, err := b.PutDoc(key, nil, v1, sealed)
		noErr(t, err)
		_, err = b.PutDoc(key, nil, v1, sealed)
		wantErr(t, err, ErrConflict)
		wantErr(t, b.DeleteDoc(key, v1), ErrConflict)
		noErr(t, b.DeleteDoc(key, v2))
		_, err = b.GetDoc(key)
		wantErr(t, err, ErrNoDoc)
		wantErr(t, b.DeleteDoc(key, v2), ErrNoDoc)
		noErr(t, b.DeleteDoc(key, AnyVersion))
		_, err = b.PutDoc(key, nil, v2, sealed)
		wantErr(t, err, ErrNoDoc)
	}
}

// Otherwise a writer that read the old document would overwrite the new one.
func TestAVersionNeverComesBackAfterDeletion(t *testing.T) {
	b := newRegistryBench(t)
	key := DocKey{Kind: "k", ID: "i"}
	old, err := b.PutDoc(key, []byte("old"), MustNotExist, false)
	noErr(t, err)
	noErr(t, b.DeleteDoc(key, old))
	b.reopen()
	_, err = b.PutDoc(key, []byte("new"), MustNotExist, false)
	noErr(t, err)
	_, err = b.PutDoc(key, []byte("stale"), old, false)
	wantErr(t, err, ErrConflict)
}

func TestDocumentsOfOneWriteStandOrFallTogether(t *testing.T) {
	b := newRegistryBench(t)
	first, err := b.PutDoc(DocKey{Kind: "k", ID: "a"}, []byte("1"), MustNotExist, false)
	noErr(t, err)
	_, err = b.WriteDocs([]DocWrite{
		{Key: DocKey{Kind: "k", ID: "b"}, Body: []byte("2")},
		{Key: DocKey{Kind: "k", ID: "a"}, Body: []byte("2"), Expect: first + 5},
	})
	wantErr(t, err, ErrConflict)
	_, err = b.GetDoc(DocKey{Kind: "k", ID: "b"})
	wantErr(t, err, ErrNoDoc)
	_, err = b.WriteDocs([]DocWrite{
		{Key: DocKey{Kind: "k", ID: "b"}, Body: []byte("2")},
		{Key: DocKey{Kind: "k", ID: "a"}, Expect: first, Delete: true},
	})
	noErr(t, err)
	_, err = b.GetDoc(DocKey{Kind: "k", ID: "a"})
	wantErr(t, err, ErrNoDoc)
	d, err := b.GetDoc(DocKey{Kind: "k", ID: "b"})
	if err != nil || string(d.Body) != "2" {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestKindsAndOwnersKeepDocumentsApart(t *testing.T) {
	b := newRegistryBench(t)
	tenant := b.tenant("acme")
	keys := []DocKey{
		{Kind: "a", ID: "bc"}, {Kind: "ab", ID: "c"}, {Kind: "a", ID: "b\x00c"}, {Kind: "a", ID: "\xff"},
		{Tenant: tenant.Num, Kind: "a", ID: "bc"}, {Tenant: tenant.Num, Kind: "ab", ID: "c"},
	}
	for i, k := range keys {
		_, err := b.PutDoc(k, []byte{byte(i)}, MustNotExist, i%2 == 0)
		noErr(t, err)
	}
	for i, k := range keys {
		if d, err := b.GetDoc(k); err != nil || !bytes.Equal(d.Body, []byte{byte(i)}) {
			t.Errorf("%v: %v, %v", k, d.Body, err)
		}
	}
	for _, tc := range []struct {
		tenant delivery.TenantNum
		kind   string
		want   []string
	}{
		{0, "a", []string{"b\x00c", "bc", "\xff"}}, {0, "ab", []string{"c"}}, {0, "abc", nil}, {tenant.Num, "a", []string{"bc"}},
	} {
		var got []string
		for after := ""; ; {
			page, next, err := b.ListDocs(tc.tenant, tc.kind, after, 2)
			noErr(t, err)
			for _, row := range page {
				noErr(t, row.Err)
				got = append(got, row.Value.Key.ID)
			}
			if after = next; next == "" {
				break
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("tenant %d kind %q: %q, want %q", tc.tenant, tc.kind, got, tc.want)
		}
	}
}

func TestMalformedDocumentKeysAreRefused(t *testing.T) {
	b := newRegistryBench(t)
	for _, k := range []DocKey{
		{}, {Kind: "k"}, {ID: "i"}, {Kind: strings.Repeat("k", MaxDocKind+1), ID: "i"}, {Kind: "k", ID: strings.Repeat("i", MaxDocID+1)},
	} {
		_, err := b.PutDoc(k, nil, AnyVersion, false)
		wantErr(t, err, ErrBadRecord)
		_, err = b.GetDoc(k)
		wantErr(t, err, ErrBadRecord)
	}
	_, _, err := b.ListDocs(0, "", "", 1)
	wantErr(t, err, ErrBadRecord)
	_, err = b.PutDoc(DocKey{Tenant: 9, Kind: "k", ID: "i"}, nil, AnyVersion, false)
	wantErr(t, err, delivery.ErrNoTenant)
}

func TestADocumentUnderALostKeyIsReportedAndCanBeReplaced(t *testing.T) {
	b := newRegistryBench(t)
	for i := range 3 {
		_, err := b.PutDoc(DocKey{Kind: "k", ID: fmt.Sprint(i)}, []byte("secret"), MustNotExist, true)
		noErr(t, err)
	}
	lost := keyDoc(DocKey{Kind: "k", ID: "1"})
	value, _, err := getFrom(b.kv.db, lost)
	noErr(t, err)
	b.damage(lost, testSealer(t, NewNodeKey()).seal(value[:docHeader:docHeader], []byte("secret"), lost))
	page, _, err := b.ListDocs(0, "k", "", 10)
	if err != nil || len(page) != 3 || page[0].Err != nil || page[2].Err != nil {
		t.Fatalf("list: %+v, %v", page, err)
	}
	wantErr(t, page[1].Err, ErrWrongKey)
	_, err = b.PutDoc(page[1].Value.Key, []byte("new"), page[1].Value.Version, true)
	noErr(t, err)
	b.damage(lost, []byte{docVersion, 0xF0})
	_, err = b.GetDoc(page[1].Value.Key)
	wantErr(t, err, ErrDamaged)
}

func FuzzDecodeDoc(f *testing.F) {
	s, err := newSealer(NodeKey{})
	if err != nil {
		f.Fatal(err)
	}
	r := &Registry{seal: s}
	key := DocKey{Kind: "k", ID: "i"}
	f.Add([]byte{})
	f.Add(append(make([]byte, docHeader), "body"...))
	f.Add(s.seal(append([]byte{docVersion, docFlagSealed}, make([]byte, 16)...), []byte("body"), keyDoc(key)))
	f.Fuzz(func(_ *testing.T, value []byte) { _, _ = r.decodeDoc(key, value) })
}
