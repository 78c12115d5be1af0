package plugins

import (
	"errors"
	"net/http"
	"time"

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

// Right is a permission that a component needs at the API server.
type Right struct {
	Verb      string // a verb of Kubernetes: get, list, create, update, patch, delete
	Group     string
	Resource  string // a subresource follows the resource: pods/eviction; empty: see Path
	Namespace string // empty: all, or the resource has none
	Path      string // a path instead of a resource, as /apis/apps/v1
	// Optional: the component works without the right, so a missing one is not a mistake.
	Optional bool
	// Selected: the component needs the right only in the namespaces that a label selector finds.
	// So a missing right in all namespaces is not a mistake. Namespace is empty.
	Selected bool
	Node     config.Node // the position in the configuration
}
