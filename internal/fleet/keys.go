package fleet

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// MACHeader is the header of a message with its authentication code: the id of the key, a dot, and
// the code in base64.
const MACHeader = "Dr-Mac"

// minKey is the minimum length of a key, in bytes.
const minKey = 32

// The purposes of signed messages. A code for one purpose is none for another.
const (
	PurposeLead  = "lead"  // a lead record
	PurposeFrame = "frame" // a part of a frame of the state file
	PurposeList  = "list"  // the list of the events in a batch

	PurposeDelta  = "delta"  // a delta for a worker, all of its parts
	PurposeLetter = "letter" // a dead letter of a worker
)

// The reasons why a message is not accepted.
var (
	// ErrUnsigned says that a message has no code, or a wrong one: no process of the fleet has made
	// it so, in this place.
	ErrUnsigned = errors.New("it has no valid signature of the fleet")
	// ErrOtherKey says that a message has a code of a key that this process does not know. It may
	// be of a process with other keys.
	ErrOtherKey = errors.New("it is signed with another key: give all processes of the fleet the same fleet.keys")
)

// Keys sign messages, and verify signatures, with HMAC-SHA256. With nil nothing is signed, and
// everything is accepted. They are safe for concurrent use.
type Keys struct {
	own      key
	accepted []key // also own
	unsigned bool  // messages without a signature are accepted
}

type key struct {
	id     string
	secret []byte
}

func newKey(from config.Secret) (key, error) {
	text, err := from.Value()
	if err != nil {
		return key{}, err
	}
	if len(text) < minKey {
		return key{}, fmt.Errorf("the key has %d bytes, and needs %d or more: make one with openssl rand -base64 48", len(text), minKey)
	}
	k := key{secret: []byte(text)}
	k.id = hex.EncodeToString(k.sum("id", "", "", nil)[:6])
	return k, nil
}

// NewKeys reads the keys of one kind: the own one, which signs, and a further one that is accepted,
// if any. unsigned: messages without a signature are accepted, too. nil: no own key is configured.
func NewKeys(own, also config.Secret, unsigned bool) (*Keys, error) {
	if own.IsZero() {
		return nil, nil //nolint:nilnil // as said
	}
	k := &Keys{unsigned: unsigned}
	var err error
	if k.own, err = newKey(own); err != nil {
		return nil, err
	}
	k.accepted = []key{k.own}
	if !also.IsZero() {
		further, err := newKey(also)
		if err != nil {
			return nil, fmt.Errorf("(accept) %w", err)
		}
		k.accepted = append(k.accepted, further)
	}
	return k, nil
}

// Sign returns the value of [MACHeader] for a message; empty: there are no keys. place says where
// the message belongs within its subject, such as the number of a part.
func (k *Keys) Sign(purpose, subject, place string, data []byte) string {
	if k == nil {
		return ""
	}
	return k.own.id + "." + base64.RawStdEncoding.EncodeToString(k.own.sum(purpose, subject, place, data))
}

// Verify checks the value of [MACHeader] of a message. The error is [ErrUnsigned] or [ErrOtherKey].
func (k *Keys) Verify(mac, purpose, subject, place string, data []byte) error {
	if k == nil || mac == "" && k.unsigned {
		return nil
	}
	id, text, _ := strings.Cut(mac, ".")
	code, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || id == "" || len(code) != sha256.Size {
		return ErrUnsigned
	}
	for i := range k.accepted {
		if k.accepted[i].id != id { // ids are public
			continue
		}
		if hmac.Equal(code, k.accepted[i].sum(purpose, subject, place, data)) {
			return nil
		}
		return ErrUnsigned
	}
	return ErrOtherKey
}

// sum returns the code. The lengths are part of it, so that no field can take over from another.
func (k *key) sum(purpose, subject, place string, data []byte) []byte {
	h := hmac.New(sha256.New, k.secret)
	var head []byte
	for _, text := range []string{"deltarouter/1", purpose, subject, place} {
		head = append(binary.AppendUvarint(head, uint64(len(text))), text...)
	}
	_, _ = h.Write(head) // it never fails
	_, _ = h.Write(data)
	return h.Sum(nil)
}

// readKeys reads the keys that a process of a role may have.
func (c *Conn) readKeys(of *config.Fleet, role Role) (err error) {
	cfg := &of.Keys
	if role == Member {
		if c.Members, err = NewKeys(cfg.Members, cfg.Accept.Members, cfg.Accept.Unsigned); err != nil {
			return fmt.Errorf("fleet.keys.members: %w", err)
		}
	}
	if c.Workers, err = NewKeys(cfg.Workers, cfg.Accept.Workers, cfg.Accept.Unsigned); err != nil {
		return fmt.Errorf("fleet.keys.workers: %w", err)
	}
	if c.Members != nil && c.Workers != nil && c.Members.own.id == c.Workers.own.id {
		return errors.New("fleet.keys: members and workers are the same key, with which a worker could sign for the leader: make two")
	}
	return nil
}
