package plugins

import (
	"errors"
	"net/http"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// KV is what a handler remembers from one call to the next. All calls of the handler share it, and
// so does the handler that takes its place at a reload. It is safe for concurrent use.
//
// With state.dir it outlives the process: what was committed before the Result of a delta was
// returned is on disk no later than the fact that the delta is done. It may be there although the
// delta comes again.
type KV interface {
	// Get returns the value under a key; false: there is none, or its time is over. The value must
	// not be modified.
	Get(key string) (value []byte, ok bool)
	// Size returns how many bytes are in use: of each value that is there [KVSize].
	Size() int64
	// Commit does all the writes, in order and at once. The error is ErrKVFull if more than limit
	// bytes would be in use and more than before; then nothing was done.
	Commit(writes []KVWrite, limit int64) error
}

// KVWrite sets or removes one value.
type KVWrite struct {
	Key     string // 1 to 512 bytes
	Value   []byte // is kept: it must not be modified any more
	Delete  bool
	Expires time.Time // zero: never
}

// ErrKVFull is the error of [KV.Commit] if there is no room.
var ErrKVFull = errors.New("limits.kv is reached")

// kvOverhead is what a value costs beside its bytes and those of its key.
const kvOverhead = 64

// KVSize returns how many bytes of a limit a value takes.
func KVSize(key string, value []byte) int64 { return int64(len(key)) + int64(len(value)) + kvOverhead }

// Lookup answers look-ups out of the caches of the sources that a handler may see. It is safe for
// concurrent use; the objects must not be modified.
type Lookup interface {
	// Lookup returns the objects that the index of the source has under value, all objects if index
	// is empty; sorted by namespace and name.
	Lookup(source, index, value string) []*event.Object
	// Count returns how many objects Lookup would return.
	Count(source, index, value string) int
	// Get returns an object; nil: there is none. The namespace is empty for cluster-scoped objects.
	Get(source, namespace, name string) *event.Object
}

// LookupGrant is a source, or one index of a source, that a handler may look things up in.
type LookupGrant struct {
	Source string
	Index  string      // empty: all of the source
	Node   config.Node // where it is written
}

// API is the way to the API server of the router's cluster, with the router's own rights.
type API struct {
	URL    string       // https://host:port, or with a path behind it
	Client *http.Client // says who the router is; it must neither be modified nor closed
}

// Right is something that a component must be allowed to do at the API server.
type Right struct {
	Verb      string // of Kubernetes: get, list, create, update, patch, delete
	Group     string
	Resource  string // a subresource is written behind it: pods/eviction
	Namespace string // empty: all, or the resource has none
	// Optional: that it lacks everywhere does not say that it lacks where it is needed, or
	// something else is done without it.
	Optional bool
	Node     config.Node // where it is written
}
