package storage

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

func testSealer(t testing.TB, key NodeKey) *sealer {
	t.Helper()
	s, err := newSealer(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealedValueOpensUnderItsOwnRecordOnly(t *testing.T) {
	s := testSealer(t, NewNodeKey())
	sealed := s.seal([]byte("head"), []byte("whsec_secret"), []byte("record 1"))
	if !bytes.HasPrefix(sealed, []byte("head")) {
		t.Fatalf("seal does not append: %q", sealed)
	}
	sealed = sealed[len("head"):]
	if len(sealed) != len("whsec_secret")+sealOverhead {
		t.Errorf("sealed to %d bytes, want %d", len(sealed), len("whsec_secret")+sealOverhead)
	}
	plain, err := s.open(sealed, []byte("record 1"))
	if err != nil || string(plain) != "whsec_secret" {
		t.Fatalf("open: %q, %v", plain, err)
	}
	if _, err := s.open(sealed, []byte("record 2")); !errors.Is(err, ErrSealBroken) {
		t.Errorf("a value copied to another record opens: %v", err)
	}
}

func TestSealingTheSameValueTwiceGivesDifferentBytes(t *testing.T) {
	s := testSealer(t, NewNodeKey())
	a := s.seal(nil, []byte("secret"), nil)
	b := s.seal(nil, []byte("secret"), nil)
	if bytes.Equal(a, b) {
		t.Error("equal secrets can be told from their sealed form")
	}
}

func TestAnotherNodeKeyIsNamedNotCalledDamage(t *testing.T) {
	mine, other := testSealer(t, NewNodeKey()), testSealer(t, NewNodeKey())
	sealed := other.seal(nil, []byte("secret"), nil)
	_, err := mine.open(sealed, nil)
	if !errors.Is(err, ErrWrongKey) || errors.Is(err, ErrSealBroken) {
		t.Fatalf("got %v, want ErrWrongKey", err)
	}
	for _, id := range []keyID{mine.id, other.id} {
		if !bytes.Contains([]byte(err.Error()), []byte(id.String())) {
			t.Errorf("%q does not name key %v", err, id)
		}
	}
}

func TestEveryChangedByteIsNoticed(t *testing.T) {
	s := testSealer(t, NewNodeKey())
	sealed := s.seal(nil, []byte("secret"), []byte("record"))
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 0x40
		if _, err := s.open(bad, []byte("record")); !errors.Is(err, ErrSealBroken) && !errors.Is(err, ErrWrongKey) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for n := range sealed {
		if _, err := s.open(sealed[:n], []byte("record")); !errors.Is(err, ErrSealBroken) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestKeyIDDoesNotRevealTheKey(t *testing.T) {
	key := NewNodeKey()
	s := testSealer(t, key)
	sealed := s.seal(nil, []byte("secret"), nil)
	for n := 4; n <= NodeKeySize; n++ {
		if bytes.Contains(sealed, key.raw[:n]) || bytes.Contains(sealed, key.raw[NodeKeySize-n:]) {
			t.Fatalf("sealed value holds %d bytes of the key", n)
		}
	}
	if again := testSealer(t, key); again.id != s.id {
		t.Error("the key's id is not the same each time")
	}
}

func TestNodeKeyIsNeverPrinted(t *testing.T) {
	key := NewNodeKey()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%U"} {
		if got := fmt.Sprintf(verb, key); got != "***" {
			t.Errorf("%s prints %q", verb, got)
		}
		if got := fmt.Sprintf(verb, &key); got != "***" {
			t.Errorf("%s of a pointer prints %q", verb, got)
		}
	}
}

func FuzzOpenSealed(f *testing.F) {
	s, err := newSealer(NewNodeKey())
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{})
	f.Add(s.seal(nil, []byte("plain"), []byte("record")))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		plain, err := s.open(sealed, []byte("record"))
		if err == nil && string(plain) != "plain" {
			t.Fatalf("forged: %q", plain)
		}
	})
}
