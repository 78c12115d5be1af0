package plugins

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// KV is the persistent store of a handler. All calls of the handler share it, and so does its
// replacement after a reload. It is safe for concurrent use.
//
// With state.dir the values survive the process. Values that were committed before the Result of a
// delta was returned are on disk no later than the record that the delta is done. After a crash the
// values may be on disk although the delta is passed again.
type KV interface {
	// Get returns the value of a key. false: there is none, or it has expired. The caller must not
	// modify the value.
	Get(key string) (value []byte, ok bool)
	// Size returns the bytes in use: the sum of [KVSize] of all values.
	Size() int64
	// Commit applies all writes atomically, in order. The error is ErrKVFull, and no write is
	// applied, if the size would grow to more than limit bytes.
	Commit(writes []KVWrite, limit int64) error
}

// SharedKV is a KV that calls in other processes change at the same time: the one of a handler on
// the workers of a fleet. A call commits with the revisions of all values that it has read or
// written.
type SharedKV interface {
	KV
	// Read is Get with the revision of the value, which changes with each write. 0: there is none.
	Read(key string) (value []byte, revision uint64, ok bool)
	// CommitIf is Commit on the condition that the revisions are still the present ones. The error
	// is [Postponed], and no write is applied, if one is not, or if the store cannot be reached. In
	// the latter case the writes may be applied nevertheless, like before a crash.
	CommitIf(writes []KVWrite, revisions map[string]uint64, limit int64) error
}

// ErrKVConflict is in the error of [SharedKV.CommitIf] if a revision is not the present one. A host
// may repeat the call at once.
var ErrKVConflict = errors.New("another call has changed a value that this call has used; the call is repeated")

// KVRepeats is the number of times that a host repeats a call at once after an [ErrKVConflict].
const KVRepeats = 3

// KVWrite sets or removes one value.
type KVWrite struct {
	Key     string // 1 to 512 bytes
	Value   []byte // is kept; the caller must not modify it afterwards
	Delete  bool
	Expires time.Time // zero: never
}

// ErrKVFull is the error of [KV.Commit] if the limit is reached.
var ErrKVFull = errors.New("limits.kv is reached")

// kvOverhead is the size of a value in addition to the bytes of its key and itself.
const kvOverhead = 64

// KVSize returns the size of a value that counts towards the limit.
func KVSize(key string, value []byte) int64 { return int64(len(key)) + int64(len(value)) + kvOverhead }

// Lookup answers look-ups from the caches of the sources that the handler is granted. It is safe
// for concurrent use. Callers must not modify the objects.
type Lookup interface {
	// Lookup returns the objects that the index of the source has for value, or all objects if
	// index is empty. They are sorted by namespace and name.
	Lookup(source, index, value string) []*event.Object
	// Count returns the number of objects that Lookup would return.
	Count(source, index, value string) int
	// Get returns an object. nil: there is none. The namespace is empty for cluster-scoped objects.
	Get(source, namespace, name string) *event.Object
}

// LookupQuery is a look-up, for [RemoteLookup].
type LookupQuery struct {
	Source, Index, Value string // as of Lookup and Count
	Namespace, Name      string // as of Get, if Name is not empty
	Count                bool   // only the number of objects
	// Deltas are those that the handler has in hand: the answer is not older than their objects.
	Deltas []*event.Delta
}

// RemoteLookup is a Lookup from the caches of another process: that of a handler on the workers of
// a fleet. The methods of Lookup find nothing while the other process cannot be reached.
type RemoteLookup interface {
	Lookup
	// Ask answers a query with objects, or with their number only. An error is [Postponed], or
	// [Rejected] if the answer is too large.
	Ask(ctx context.Context, q LookupQuery) (objects []*event.Object, count int, err error)
}

// Ask answers a query from any Lookup. Only a RemoteLookup fails.
func Ask(ctx context.Context, from Lookup, q LookupQuery) (objects []*event.Object, count int, err error) {
	if remote, ok := from.(RemoteLookup); ok {
		return remote.Ask(ctx, q)
	}
	switch {
	case q.Name != "":
		if o := from.Get(q.Source, q.Namespace, q.Name); o != nil {
			objects = []*event.Object{o}
		}
	case q.Count:
		return nil, from.Count(q.Source, q.Index, q.Value), nil
	default:
		objects = from.Lookup(q.Source, q.Index, q.Value)
	}
	return objects, len(objects), nil
}

// LookupGrant permits a handler to look up objects of a source, or of one index of a source.
type LookupGrant struct {
	Source string
	Index  string      // empty: the whole source
	Node   config.Node // the position in the configuration
}

// API is the access to the API server of the router's cluster, with the router's own rights.
type API struct {
	URL    string       // https://host:port, or with a path behind it
	Client *http.Client // authenticates the router; must be neither modified nor closed
}

// NeededRight is a right that a component needs.
type NeededRight struct {
	authz.Right

	// Optional: the component works without the right, so a missing one is not a mistake.
	Optional bool
	// Selected: the component needs the right only in the namespaces that a label selector finds.
	// So a missing right in all namespaces is not a mistake. Namespace is empty.
	Selected bool
	// When is set for a right that the API server requires beside the verb of a request, depending on
	// the content of the written object: it says for which content, to follow "requires it". No
	// generated role grants such a right, because it lets the component give others more than it has
	// itself: an operator decides.
	When string
	Node config.Node // the position in the configuration
}
