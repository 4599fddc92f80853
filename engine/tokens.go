package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/storage"
)

// ErrToken says that an API token is not known, or is not any more.
var ErrToken = errors.New("this API token is not known")

// ErrTokenExpired says that an API token was known, and has ended.
var ErrTokenExpired = errors.New("this API token has expired")

const (
	// tokenKind is the kind of the documents that hold tokens. They are sealed: a
	// hash is of no use to a thief, names and tenants may be.
	tokenKind = "token"
	// maxTokens bounds what a node holds in memory.
	maxTokens = 10_000
	// maxTokenName is in bytes.
	maxTokenName = 128
	// maxOverlap bounds how long a rotated token goes on being accepted, and
	// usualOverlap is how long it is if nothing else is said.
	maxOverlap   = 30 * 24 * time.Hour
	usualOverlap = 24 * time.Hour
	// maxTokenHashes bounds the texts of one token that are valid at a time.
	maxTokenHashes = 4
	// usedEvery is how exactly the last use is known: it costs a write.
	usedEvery = time.Hour
)

// tokenRecord is a token as it is stored.
type tokenRecord struct {
	Name     string      `json:"name"`
	Scope    TokenScope  `json:"scope"`
	Tenant   string      `json:"tenant,omitempty"`
	Hashes   []tokenHash `json:"hashes"` // the newest first
	Created  time.Time   `json:"created"`
	Rotated  time.Time   `json:"rotated,omitzero"`
	Expires  time.Time   `json:"expires,omitzero"`
	LastUsed time.Time   `json:"last_used,omitzero"`
}

// heldToken is a token in memory. The record is immutable; a change replaces it.
type heldToken struct {
	record *tokenRecord
	used   *atomic.Int64 // unix seconds of the last use, by the hour
}

// tokens holds the API tokens of a node, all of them in memory, since every
// request asks for one.
//
// Invariant: what is in byID is stored; changes are made one at a time under
// change, stored first.
type tokens struct {
	registry *storage.Registry

	change sync.Mutex
	mu     sync.RWMutex // guards byID; taken after change
	byID   map[string]heldToken
}

func (e *Engine) loadTokens() error {
	e.tokens = &tokens{registry: e.registry, byID: map[string]heldToken{}}
	for after := ""; ; {
		rows, next, err := e.registry.ListDocs(0, tokenKind, after, listPage)
		if err != nil {
			return fmt.Errorf("read API tokens: %w", err)
		}
		for _, row := range rows {
			record := &tokenRecord{}
			err := row.Err
			if err == nil {
				err = json.Unmarshal(row.Value.Body, record)
			}
			if err != nil {
				// It opens nothing any more; the others have to.
				e.logger.Error("api_token_unreadable", "token", row.Value.Key.ID, "error", err.Error())
				continue
			}
			e.tokens.hold(row.Value.Key.ID, record)
		}
		if after = next; next == "" {
			return nil
		}
	}
}

func (t *tokens) hold(id string, record *tokenRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := heldToken{record: record, used: new(atomic.Int64)}
	if old, ok := t.byID[id]; ok {
		held.used = old.used
	} else if !record.LastUsed.IsZero() {
		held.used.Store(record.LastUsed.Unix())
	}
	t.byID[id] = held
}

func (t *tokens) get(id string) (heldToken, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	held, ok := t.byID[id]
	return held, ok
}

// store writes a record, then holds it.
func (t *tokens) store(id string, record *tokenRecord) error {
	body, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode API token: %w", err)
	}
	if _, err := t.registry.PutDoc(storage.DocKey{Kind: tokenKind, ID: id}, body, storage.AnyVersion, true); err != nil {
		return err
	}
	t.hold(id, record)
	return nil
}

func (t *tokens) remove(id string) error {
	if err := t.registry.DeleteDoc(storage.DocKey{Kind: tokenKind, ID: id}, storage.AnyVersion); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
	return nil
}

func (h heldToken) view(id string, now time.Time) Token {
	r := h.record
	out := Token{
		ID: id, Name: r.Name, Scope: r.Scope, Tenant: r.Tenant, CreatedAt: r.Created, RotatedAt: r.Rotated, ExpiresAt: r.Expires,
	}
	for _, hash := range r.Hashes {
		if hash.Until.After(now) && hash.Until.After(out.OverlapUntil) {
			out.OverlapUntil = hash.Until
		}
	}
	if used := h.used.Load(); used != 0 {
		out.LastUsedAt = time.Unix(used, 0).UTC()
	}
	return out
}

// AuthenticateToken returns the token of a text, or [ErrToken] or
// [ErrTokenExpired].
func (e *Engine) AuthenticateToken(text string) (Token, error) {
	now := time.Now()
	id := tokenID(text)
	held, ok := e.tokens.get(id)
	if !ok || !matches(held.record.Hashes, text, now) {
		return Token{}, ErrToken
	}
	if r := held.record; !r.Expires.IsZero() && !now.Before(r.Expires) {
		return Token{}, ErrTokenExpired
	}
	e.tokenUsed(id, held, now)
	return held.view(id, now), nil
}

// tokenUsed notes the hour of a use; the first use in an hour writes it.
func (e *Engine) tokenUsed(id string, held heldToken, now time.Time) {
	hour, before := now.Truncate(usedEvery).Unix(), held.used.Load()
	if before >= hour || !held.used.CompareAndSwap(before, hour) {
		return
	}
	e.errand(func(context.Context) {
		t := e.tokens
		t.change.Lock()
		defer t.change.Unlock()
		now, ok := t.get(id)
		if !ok {
			return // revoked meanwhile
		}
		record := *now.record
		record.LastUsed = time.Unix(hour, 0).UTC()
		if err := t.store(id, &record); err != nil {
			e.logger.Warn("api_token_use_not_noted", "token", id, "error", err.Error())
		}
	})
}

// CreateToken makes a token. Its text is returned this once and never again.
func (e *Engine) CreateToken(_ context.Context, in TokenInput) (Token, string, error) {
	if err := e.checkToken(in); err != nil {
		return Token{}, "", err
	}
	t := e.tokens
	t.change.Lock()
	defer t.change.Unlock()
	if n := t.count(); n >= maxTokens {
		return Token{}, "", &ConflictError{
			Field: "tokens", Value: strconv.Itoa(n), Rule: "a node holds at most " + strconv.Itoa(maxTokens), Hint: "revoke those that are not used",
		}
	}
	now := time.Now().UTC().Truncate(time.Second)
	id := newTokenID(now)
	text, hash := newTokenText(id)
	record := &tokenRecord{Name: in.Name, Scope: in.Scope, Tenant: in.Tenant, Hashes: []tokenHash{hash}, Created: now}
	if in.ExpiresIn > 0 {
		record.Expires = now.Add(in.ExpiresIn)
	}
	if err := t.store(id, record); err != nil {
		return Token{}, "", e.registryFault("token", id, err)
	}
	return e.viewToken(id), text, nil
}

func (t *tokens) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}

func (e *Engine) viewToken(id string) Token {
	held, _ := e.tokens.get(id)
	return held.view(id, time.Now())
}

func (e *Engine) checkToken(in TokenInput) error {
	var f faults
	if in.Name == "" || len(in.Name) > maxTokenName {
		f.add("name", in.Name, "1 to 128 bytes", "say who uses it, such as checkout-service")
	}
	switch in.Scope {
	case TokenAdmin:
		if in.Tenant != "" {
			f.add("tenant", in.Tenant, "not with the scope admin, which is for the whole node", "leave it out, or choose publish or read")
		}
	case TokenPublish:
		if in.Tenant == "" {
			f.add("tenant", "", "required with the scope publish", "name the tenant whose events it may publish")
		}
	case TokenRead:
	default:
		f.add("scope", string(in.Scope), "one of admin, publish, read", "choose the least that is enough")
	}
	if in.ExpiresIn < 0 {
		f.add("expires_in", in.ExpiresIn.String(), "not negative", "leave it out for a token that does not expire")
	}
	if in.Tenant != "" {
		_, err := e.tenant(in.Tenant)
		switch {
		case errors.Is(err, ErrNotFound):
			f.add("tenant", in.Tenant, "an existing tenant", "make it with PUT /v1/tenants/{tenant}, or check the spelling")
		case err != nil:
			return err
		}
	}
	return f.err()
}

// GetToken returns a token, without its text.
func (e *Engine) GetToken(_ context.Context, id string) (Token, error) {
	held, ok := e.tokens.get(id)
	if !ok {
		return Token{}, noToken(id)
	}
	return held.view(id, time.Now()), nil
}

func noToken(id string) error { return fmt.Errorf("token %q: %w", clipped(id), ErrNotFound) }

// ListTokens returns a page of the tokens, the oldest first.
func (e *Engine) ListTokens(_ context.Context, page Page) ([]Token, string, error) {
	t, now := e.tokens, time.Now()
	t.mu.RLock()
	defer t.mu.RUnlock()
	ids := slices.Sorted(maps.Keys(t.byID))
	from, found := slices.BinarySearch(ids, page.Cursor)
	if found {
		from++ // the cursor is the last id of the page before
	}
	ids = ids[from:]
	next := ""
	if most := page.limit(); len(ids) > most {
		ids = ids[:most]
		next = ids[most-1]
	}
	out := make([]Token, len(ids))
	for i, id := range ids {
		out[i] = t.byID[id].view(id, now)
	}
	return out, next, nil
}

// RotateToken gives a token a new text, which is returned this once; the present
// one stays valid for keep: 0 = 24 h, negative = not at all.
func (e *Engine) RotateToken(_ context.Context, id string, keep time.Duration) (Token, string, error) {
	if keep > maxOverlap {
		var f faults
		f.add("keep", keep.String(), "at most "+maxOverlap.String(), "choose a shorter overlap")
		return Token{}, "", f.err()
	}
	t := e.tokens
	t.change.Lock()
	defer t.change.Unlock()
	held, ok := t.get(id)
	if !ok {
		return Token{}, "", noToken(id)
	}
	now := time.Now().UTC().Truncate(time.Second)
	record := *held.record
	text, hash := newTokenText(id)
	record.Hashes, record.Rotated = append([]tokenHash{hash}, overlapping(record.Hashes, now, cmp.Or(keep, usualOverlap))...), now
	if err := t.store(id, &record); err != nil {
		return Token{}, "", e.registryFault("token", id, err)
	}
	return e.viewToken(id), text, nil
}

// overlapping are the hashes that go on being valid after a rotation: none longer
// than keep from now.
func overlapping(hashes []tokenHash, now time.Time, keep time.Duration) []tokenHash {
	var out []tokenHash
	for _, h := range hashes {
		if end := now.Add(keep); h.Until.IsZero() || h.Until.After(end) {
			h.Until = end
		}
		if h.Until.After(now) && len(out) < maxTokenHashes-1 {
			out = append(out, h)
		}
	}
	return out
}

// RevokeToken ends a token at once.
func (e *Engine) RevokeToken(_ context.Context, id string) error {
	t := e.tokens
	t.change.Lock()
	defer t.change.Unlock()
	if _, ok := t.get(id); !ok {
		return noToken(id)
	}
	if err := t.remove(id); err != nil {
		return e.registryFault("token", id, err)
	}
	return nil
}

// revokeTokensOf ends the tokens of a tenant that is deleted: one that is made
// later under the same id is another's.
func (e *Engine) revokeTokensOf(tenant string) error {
	t := e.tokens
	t.change.Lock()
	defer t.change.Unlock()
	t.mu.RLock()
	var ids []string
	for id, held := range t.byID {
		if held.record.Tenant == tenant {
			ids = append(ids, id)
		}
	}
	t.mu.RUnlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, t.remove(id))
	}
	return errors.Join(errs...)
}

// errand runs something short beside a request that need not wait for it. Stop
// waits for it. What comes up while Stop already does, from a scheduler that is
// putting its last outcomes away, is done before errand returns: the queue is
// open for as long as the scheduler runs.
func (e *Engine) errand(do func(ctx context.Context)) {
	run := func() {
		ctx, cancel := context.WithTimeout(context.Background(), operationalTimeout)
		defer cancel()
		do(ctx)
	}
	e.errands.Lock()
	stopping := e.stopping
	if !stopping {
		e.wg.Go(run)
	}
	e.errands.Unlock()
	if stopping {
		run()
	}
}
