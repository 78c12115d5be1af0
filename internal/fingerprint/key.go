package fingerprint

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
)

// macSize is the size of a hash in bytes.
const macSize = 16

// Key makes fingerprints. It is safe for concurrent use. A nil Key makes none.
type Key struct {
	secret []byte
	id     string
}

// NewKey returns a key that is derived from a secret, which may have other uses.
func NewKey(secret []byte) *Key {
	derive := func(use string) []byte {
		sum := hmac.New(sha256.New, secret)
		_, _ = sum.Write([]byte(use)) // it never fails
		return sum.Sum(nil)
	}
	return &Key{derive("deltarouter fingerprints"), base64.RawURLEncoding.EncodeToString(derive("deltarouter fingerprints, id")[:9])}
}

// ID identifies the key, and tells nothing about it.
func (k *Key) ID() string {
	if k == nil {
		return ""
	}
	return k.id
}

// hasher hashes the values of one object.
type hasher struct {
	mac hash.Hash
	uid string
	at  []byte // the path of the present value: the length and the text of each name
	buf []byte
}

func (k *Key) hasher(uid string) *hasher {
	return &hasher{mac: hmac.New(sha256.New, k.secret), uid: uid}
}

// within calls f while a name is appended to the path.
func (h *hasher) within(name string, f func()) {
	before := len(h.at)
	h.at = append(binary.AppendUvarint(h.at, uint64(len(name))), name...)
	f()
	h.at = h.at[:before]
}

// sum returns the kind of a value, and the hash of it at the present path.
func (h *hasher) sum(kind byte, text string) string {
	b := binary.AppendUvarint(h.buf[:0], uint64(len(h.uid)))
	b = append(b, h.uid...)
	b = append(binary.AppendUvarint(b, uint64(len(h.at))), h.at...)
	h.buf = append(b, kind)
	h.mac.Reset()
	_, _ = h.mac.Write(h.buf) // it never fails
	_, _ = h.mac.Write([]byte(text))
	b = h.mac.Sum(h.buf[:0])
	return string(kind) + base64.RawURLEncoding.EncodeToString(b[:macSize])
}
