package engine

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/storage"
)

func (b *bundle) token(in TokenInput) (Token, string) {
	b.t.Helper()
	token, text, err := b.CreateToken(b.t.Context(), in)
	if err != nil {
		b.t.Fatal(err)
	}
	return token, text
}

func TestTokensSurviveARestartAndTheirTextIsNowhereOnDisk(t *testing.T) {
	dir := t.TempDir()
	in := func(c *Config) { c.Storage.Dir = dir }
	b := setup(t, in)
	token, text := b.token(TokenInput{Name: "checkout", Scope: TokenPublish, Tenant: "t"})
	if got, err := b.AuthenticateToken(text); err != nil || got.ID != token.ID || got.Tenant != "t" || got.Scope != TokenPublish {
		t.Fatalf("%+v %v", got, err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(text)) || bytes.Contains(raw, []byte(text[len(tokenPrefix)+tokenIDLen+1:])) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	again := setup(t, in)
	got, err := again.AuthenticateToken(text)
	if err != nil || got.Name != "checkout" || got.LastUsedAt.IsZero() {
		t.Errorf("after a restart: %+v %v", got, err)
	}
	if err := again.RevokeToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := again.AuthenticateToken(text); !errors.Is(err, ErrToken) {
		t.Errorf("a revoked token: %v", err)
	}
	if err := again.RevokeToken(t.Context(), token.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestARotatedTokenOverlapsAsLongAsItIsTold(t *testing.T) {
	b := setup(t)
	token, first := b.token(TokenInput{Name: "n", Scope: TokenRead})
	rotated, second, err := b.RotateToken(t.Context(), token.ID, time.Hour)
	if err != nil || rotated.OverlapUntil.IsZero() || rotated.RotatedAt.IsZero() {
		t.Fatalf("%+v %v", rotated, err)
	}
	for _, text := range []string{first, second} {
		if _, err := b.AuthenticateToken(text); err != nil {
			t.Errorf("inside the overlap: %v", err)
		}
	}
	_, third, err := b.RotateToken(t.Context(), token.ID, -1)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]error{first: ErrToken, second: ErrToken, third: nil} {
		if _, err := b.AuthenticateToken(text); !errors.Is(err, want) {
			t.Errorf("without an overlap: %v, want %v", err, want)
		}
	}
	if _, _, err := b.RotateToken(t.Context(), token.ID, 1000*time.Hour); err == nil {
		t.Error("an overlap without end was accepted")
	}
	now := time.Now()
	hashes := overlapping([]tokenHash{{Sum: []byte("a")}, {Sum: []byte("b"), Until: now.Add(time.Minute)}, {Sum: []byte("c"), Until: now}}, now, time.Hour)
	if len(hashes) != 2 || !hashes[0].Until.Equal(now.Add(time.Hour)) || !hashes[1].Until.Equal(now.Add(time.Minute)) {
		t.Errorf("%+v", hashes)
	}
}

func TestAnExpiredTokenOpensNothingAndSaysSo(t *testing.T) {
	b := setup(t)
	token, text := b.token(TokenInput{Name: "n", Scope: TokenAdmin, ExpiresIn: time.Hour})
	held, _ := b.tokens.get(token.ID)
	record := *held.record
	record.Expires = time.Now().Add(-time.Second)
	b.tokens.hold(token.ID, &record)
	if _, err := b.AuthenticateToken(text); !errors.Is(err, ErrTokenExpired) {
		t.Errorf("%v", err)
	}
	for _, wrong := range []string{"", "x", text[:len(text)-1], text + "x", "dsp_" + token.ID + "_", "dsp_" + token.ID} {
		if _, err := b.AuthenticateToken(wrong); !errors.Is(err, ErrToken) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestTokensEndWithTheirTenant(t *testing.T) {
	b := setup(t)
	_, text := b.token(TokenInput{Name: "n", Scope: TokenPublish, Tenant: "t"})
	_, other := b.token(TokenInput{Name: "n", Scope: TokenRead})
	if err := b.DeleteTenant(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.AuthenticateToken(text); !errors.Is(err, ErrToken) {
		t.Errorf("the tenant's token: %v", err)
	}
	if _, err := b.AuthenticateToken(other); err != nil {
		t.Errorf("another's token: %v", err)
	}
}

func TestTokensAreListedInTheOrderOfMakingWhateverChangesMeanwhile(t *testing.T) {
	b := setup(t)
	made := map[string]bool{}
	for range 7 {
		token, _ := b.token(TokenInput{Name: "n", Scope: TokenRead})
		made[token.ID] = true
	}
	var seen []Token
	page := Page{Limit: 3}
	for {
		rows, next, err := b.ListTokens(t.Context(), page)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, rows...)
		if next == "" {
			break
		}
		if err := b.RevokeToken(t.Context(), next); err != nil { // the cursor's own row
			t.Fatal(err)
		}
		page.Cursor = next
	}
	for i, token := range seen {
		if !made[token.ID] || i > 0 && token.ID <= seen[i-1].ID {
			t.Errorf("%d: %+v", i, token)
		}
	}
	if len(seen) != 7 {
		t.Errorf("%d rows, want 7", len(seen))
	}
}

func TestBadTokensAreNamedFieldByField(t *testing.T) {
	b := setup(t)
	for field, in := range map[string]TokenInput{
		"name":       {Scope: TokenAdmin},
		"scope":      {Name: "n", Scope: "root"},
		"tenant":     {Name: "n", Scope: TokenPublish},
		"expires_in": {Name: "n", Scope: TokenRead, ExpiresIn: -1},
	} {
		_, _, err := b.CreateToken(t.Context(), in)
		if invalid, ok := errors.AsType[*InvalidError](err); !ok || len(invalid.Fields) != 1 || invalid.Fields[0].Field != field || invalid.Fields[0].Hint == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, in := range []TokenInput{{Name: "n", Scope: TokenRead, Tenant: "nobody"}, {Name: "n", Scope: TokenAdmin, Tenant: "t"}} {
		if _, _, err := b.CreateToken(t.Context(), in); err == nil {
			t.Errorf("%+v was accepted", in)
		}
	}
}

func TestADamagedTokenIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	b := setup(t, func(c *Config) { c.Storage.Dir = dir })
	_, text := b.token(TokenInput{Name: "n", Scope: TokenRead})
	if _, err := b.registry.PutDoc(storage.DocKey{Kind: tokenKind, ID: "damaged"}, []byte("{"), storage.AnyVersion, true); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := setup(t, func(c *Config) { c.Storage.Dir = dir }).AuthenticateToken(text); err != nil {
		t.Errorf("the one beside it: %v", err)
	}
}

func BenchmarkAuthenticateToken(b *testing.B) {
	text, hash := newTokenText("0000000000000000")
	now := time.Now()
	hashes := []tokenHash{hash}
	b.ReportAllocs()
	for b.Loop() {
		if !matches(hashes, text, now) {
			b.Fatal("no match")
		}
	}
}
