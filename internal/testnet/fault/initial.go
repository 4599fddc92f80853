package fault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// A server can end a connection before it has any state: with a CONNECTION_CLOSE
// in an Initial packet, whose keys follow from the connection id that the client
// chose (RFC 9001 section 5.2).

// initialSalt is version 1's.
var initialSalt = []byte{
	0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
}

// initialKeys protect what a server sends in Initial packets.
type initialKeys struct{ key, iv, mask []byte }

func serverInitialKeys(clientChose []byte) (initialKeys, error) {
	secret, err := hkdf.Extract(sha256.New, clientChose, initialSalt)
	if err != nil {
		return initialKeys{}, err
	}
	expand := func(from []byte, label string, length int) []byte {
		full := "tls13 " + label
		info := string([]byte{byte(length >> 8), byte(length), byte(len(full))}) + full + "\x00"
		out, expandErr := hkdf.Expand(sha256.New, from, info, length)
		if expandErr != nil {
			err = expandErr
		}
		return out
	}
	server := expand(secret, "server in", sha256.Size)
	keys := initialKeys{key: expand(server, "quic key", 16), iv: expand(server, "quic iv", 12), mask: expand(server, "quic hp", 16)}
	return keys, err
}

// Transport error codes (RFC 9000 section 20.1).
const (
	quicConnectionRefused = 0x2
	quicCryptoError       = 0x100
)

// refusal is a packet that ends the connection whose first packet this is.
func (h packetHead) refusal(code uint64) ([]byte, error) {
	keys, err := serverInitialKeys(h.to)
	if err != nil {
		return nil, fmt.Errorf("initial keys: %w", err)
	}
	// CONNECTION_CLOSE, its code, the frame type to blame, no reason.
	frame := append(quicvarint.Append([]byte{0x1c}, code), 0, 0)
	const numberLength, tag = 4, 16
	header := binary.BigEndian.AppendUint32([]byte{0xc0 | (numberLength - 1)}, 1)
	header = append(append(header, byte(len(h.from))), h.from...)
	header = append(append(header, idLength), make([]byte, idLength)...)
	header = append(header, 0) // no token
	header = quicvarint.Append(header, uint64(numberLength+len(frame)+tag))
	numberAt := len(header)
	header = append(header, 0, 0, 0, 0) // packet number 0, so the nonce is the iv
	return seal(keys, header, numberAt, frame)
}

// seal encrypts a payload and hides the packet number (RFC 9001 section 5.4).
func seal(keys initialKeys, header []byte, numberAt int, payload []byte) ([]byte, error) {
	block, err := aes.NewCipher(keys.key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	packet := aead.Seal(header, keys.iv, payload, header)
	hide, err := aes.NewCipher(keys.mask)
	if err != nil {
		return nil, err
	}
	var mask [aes.BlockSize]byte
	hide.Encrypt(mask[:], packet[numberAt+4:numberAt+4+aes.BlockSize])
	packet[0] ^= mask[0] & 0x0f
	for i := range 4 {
		packet[numberAt+i] ^= mask[1+i]
	}
	return packet, nil
}
