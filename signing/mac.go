package signing

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"sync/atomic"
)

// macKey is an HMAC key that keeps one keyed hash ready. Setting up HMAC costs
// two blocks and several allocations, which for a payload of a kilobyte is a
// third of the work; [hash.Hash.Reset] of crypto/hmac brings back the state
// after the key.
//
// One hash and not a sync.Pool: a pool costs memory for each processor, and
// there is a key for each subscriber. A second concurrent use makes its own.
type macKey struct {
	key  []byte
	hash func() hash.Hash
	idle atomic.Pointer[macState]
}

// macState is a keyed hash and room for its sum, so that neither is allocated anew.
type macState struct {
	hash.Hash
	sum [sha512.Size]byte
}

func newMACKey(key []byte) *macKey { return &macKey{key: key, hash: sha256.New} }

// get returns a keyed hash in its first state.
func (k *macKey) get() *macState {
	if s := k.idle.Swap(nil); s != nil {
		return s
	}
	return &macState{Hash: hmac.New(k.hash, k.key)}
}

// put gives back a hash. One that is never given back is simply collected.
func (k *macKey) put(s *macState) {
	s.Reset()
	k.idle.Store(s)
}

// finish returns the MAC of what was written, valid until put.
func (s *macState) finish() []byte { return s.Sum(s.sum[:0]) }
