package storage

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Secrets never lie on the disk as plain text. A sealed value is
//
//	version(1) · key id(8) · nonce(12) · ciphertext · tag(16)
//
// under AES-256-GCM, with the record's key as associated data: a value that
// was copied to another record does not open there. The key id says which key
// made the value. Today that is always the node's; keys per tenant become
// further ids, not another format.
//
// The nonce is random. NIST SP 800-38D §8.3 allows 2³² values under one key,
// which is a thousand changes of each of four million subscribers.
const (
	sealVersion  = 1
	sealHeader   = 1 + len(keyID{})
	sealOverhead = sealHeader + 12 + 16
)

// ErrWrongKey says that a value was sealed with a key that this node does not
// have. The value is not damaged: it opens with the right node key file.
var ErrWrongKey = errors.New("sealed with another key")

// ErrSealBroken says that a sealed value was damaged, or belongs to another
// record.
var ErrSealBroken = errors.New("sealed value is damaged")

// keyID names a key without revealing it.
type keyID [8]byte

// String returns the id in hex, as errors and the documentation show it.
func (id keyID) String() string { return hex.EncodeToString(id[:]) }

// sealer seals and opens values with one key. It is safe for concurrent use.
type sealer struct {
	id   keyID
	aead cipher.AEAD
}

// newSealer derives from a node key what it is used for (RFC 5869), so that the
// key can serve other purposes later without one endangering another.
func newSealer(key NodeKey) (*sealer, error) {
	derive := func(purpose string, n int) ([]byte, error) {
		return hkdf.Key(sha256.New, key.raw[:], nil, "dispatcher node key 1: "+purpose, n)
	}
	id, err := derive("key id", len(keyID{}))
	if err != nil {
		return nil, fmt.Errorf("derive key id: %w", err)
	}
	secret, err := derive("seal records", 32)
	if err != nil {
		return nil, fmt.Errorf("derive sealing key: %w", err)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("sealing cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("sealing mode: %w", err)
	}
	return &sealer{id: keyID(id), aead: aead}, nil
}

// seal appends the sealed form of plain to dst. record is the key under which
// the result will be stored.
func (s *sealer) seal(dst, plain, record []byte) []byte {
	dst = append(dst, sealVersion)
	dst = append(dst, s.id[:]...)
	return s.aead.Seal(dst, nil, plain, record)
}

// open returns the plain form of what seal made for the same record.
func (s *sealer) open(sealed, record []byte) ([]byte, error) {
	id, err := sealedBy(sealed)
	if err != nil {
		return nil, err
	}
	if id != s.id {
		return nil, fmt.Errorf("key %v is needed, the node key is %v: %w", id, s.id, ErrWrongKey)
	}
	plain, err := s.aead.Open(nil, nil, sealed[sealHeader:], record)
	if err != nil {
		// The cipher's own error says nothing more, on purpose.
		return nil, fmt.Errorf("authentication failed: %w", ErrSealBroken)
	}
	return plain, nil
}

// sealedBy returns the id of the key that a value was sealed with.
func sealedBy(sealed []byte) (keyID, error) {
	if len(sealed) < sealOverhead {
		return keyID{}, fmt.Errorf("%d bytes, want at least %d: %w", len(sealed), sealOverhead, ErrSealBroken)
	}
	if sealed[0] != sealVersion {
		return keyID{}, fmt.Errorf("seal version %d, this program knows %d: %w", sealed[0], sealVersion, ErrSealBroken)
	}
	return keyID(bytes.Clone(sealed[1:sealHeader])), nil
}
