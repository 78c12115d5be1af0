package work

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/s2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// A Message is a delta for a worker, with everything that the worker must not find out by itself:
// the filter, the key and the rules about time were evaluated by the leader.
type Message struct {
	Route string // id of the route
	Hash  string // of the configuration of the route that concerns workers
	// Key is the order key. All messages of a key are in one partition, in order.
	Key   string
	Keyed bool // Key is the value of the route's `key`; false: it names the object
	// Target is the only sink that gets the delta, which is redelivered; empty: all of the route.
	Target string
	// Made: the route has `emit`, which the leader has evaluated. The event of the delta is the one
	// to deliver.
	Made  bool
	Delta *event.Delta
}

const (
	// format is the first byte of a body, which is not compressed; format 1 was.
	format = 2

	flagKeyed = 1
	flagMade  = 2
	flagWith  = 4

	// maxPayload is the largest size of a message after decompression: a delta has at most two
	// objects of 16 MiB, and an event that may contain both.
	maxPayload = 80 << 20
	// maxScratch bounds the memory that Encode keeps for its next call.
	maxScratch = 256 << 10
	// maxResources bounds the resources that a codec keeps.
	maxResources = 10_000
)

// ErrFormat says that a message was made by another version of the router, or is no message.
var ErrFormat = errors.New("the message is damaged, or was made by another version of the router")

// Codec makes bodies of messages and messages of bodies. It is safe for concurrent use. Messages
// of one resource share it.
type Codec struct {
	scratch sync.Pool // of *scratch, for Encode

	mu        sync.Mutex
	resources map[event.Resource]*event.Resource
}

// scratch is the memory of an Encode.
type scratch struct{ plain, body []byte }

// NewCodec returns a codec.
func NewCodec() *Codec { return &Codec{resources: make(map[event.Resource]*event.Resource)} }

// Encode returns the body of a message. Of a Secret it has the identity only.
func (c *Codec) Encode(m *Message) []byte {
	room, _ := c.scratch.Get().(*scratch)
	if room == nil {
		room = new(scratch)
	}
	b := room.plain[:0]
	var flags uint64
	if m.Keyed {
		flags |= flagKeyed
	}
	if m.Made {
		flags |= flagMade
	}
	if len(m.Delta.With) > 0 {
		flags |= flagWith
	}
	b = binary.AppendUvarint(b, flags)
	if flags&flagWith != 0 {
		b = append(binary.AppendUvarint(b, uint64(len(m.Delta.With))), m.Delta.With...)
	}
	for _, text := range []string{m.Route, m.Hash, m.Key, m.Target, m.Delta.TraceParent} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	// The delta ends with the message. A large scratch is left to the garbage collector.
	b = checkpoint.AppendDelta(b, m.Delta)
	if room.body = slices.Grow(room.body[:0], 1+s2.MaxEncodedLen(len(b))); cap(b)+cap(room.body) <= maxScratch {
		defer c.scratch.Put(room)
	}
	room.plain = b
	// The scratch is used again, so the message gets a copy of the right size.
	packed := s2.Encode(room.body[1:cap(room.body)], b)
	body := make([]byte, 1+len(packed))
	body[0] = format
	copy(body[1:], packed)
	return body
}

// Decode is the inverse of Encode. The body may come from anybody.
func (c *Codec) Decode(body []byte) (*Message, error) {
	if len(body) == 0 || body[0] != format {
		return nil, ErrFormat
	}
	// Before it is decompressed: a few bytes may stand for many.
	if n, err := s2.DecodedLen(body[1:]); err != nil || n > maxPayload {
		return nil, ErrFormat
	}
	b, err := s2.Decode(nil, body[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	flags, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, ErrFormat
	}
	b = b[n:]
	m := &Message{Keyed: flags&flagKeyed != 0, Made: flags&flagMade != 0}
	// The texts are in the order of Encode.
	var traceParent, with string
	texts := []*string{&m.Route, &m.Hash, &m.Key, &m.Target, &traceParent}
	if flags&flagWith != 0 {
		texts = slices.Insert(texts, 0, &with)
	}
	for _, text := range texts {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, ErrFormat
		}
		*text, b = string(b[n:n+int(size)]), b[n+int(size):] //nolint:gosec // at most the length of b
	}
	// The handler and the sinks get it as it is, so it must be an object.
	if with != "" && (rawjson.Check(with) != nil || rawjson.Value(with).Kind() != rawjson.Object) {
		return nil, ErrFormat
	}
	if m.Delta, err = checkpoint.TakeDelta(b, c.resource); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	m.Delta.TraceParent = traceParent
	if with != "" {
		m.Delta.With = []byte(with)
	}
	return m, nil
}

// resource returns the resource of a message, the same one for all messages with it.
func (c *Codec) resource(_ string, r event.Resource) *event.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.resources[r]
	if known == nil {
		known = &event.Resource{
			GroupVersionResource: schema.GroupVersionResource{
				Group: strings.Clone(r.Group), Version: strings.Clone(r.Version), Resource: strings.Clone(r.Resource),
			},
			Cluster: strings.Clone(r.Cluster), Kind: strings.Clone(r.Kind),
		}
		if len(c.resources) < maxResources {
			c.resources[*known] = known
		}
	}
	return known
}

// Partition returns the partition of an order key.
func Partition(key string, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(max(partitions, 1))) //nolint:gosec // configured, small
}
