package index

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Spec is one index: a name, and the expressions that yield the values of an object.
type Spec struct {
	// Name is a hash of the expressions, see [NewSpec]. Sources that share a watch share equal
	// indexes by it.
	Name     string
	programs []*cel.Program
	fields   []*equality.Field // parallel to programs; nil: the program is more than a field
	failures counter
	warn     func(error, *event.Object)
}

// counter is the part of a metric that Spec uses.
type counter interface{ Inc() }

// NewSpec returns an index over the union of the values of the programs. Each program was compiled
// for [cel.Index] from the text at the same position. failures counts failures. The first one is
// logged with the label, which names the position of the index in the configuration. NewSpec is for
// the router itself: the programs come from its compiler. Other programs use [Compile].
func NewSpec(texts []string, programs []*cel.Program, failures counter, log *slog.Logger, label string) Spec {
	hash := sha256.New()
	for _, text := range texts {
		hash.Write([]byte(text))
		hash.Write([]byte{0})
	}
	fields := make([]*equality.Field, len(programs))
	for i, p := range programs {
		if field, ok := p.Plain(); ok {
			fields[i] = field
		}
	}
	var warned atomic.Bool
	return Spec{
		Name: hex.EncodeToString(hash.Sum(nil)[:12]), programs: programs, fields: fields, failures: failures,
		warn: func(err error, o *event.Object) {
			if !warned.Swap(true) {
				log.Warn("index expression failed, the object is not indexed; more failures are only counted",
					"index", label, "object", o.String(), "err", err)
			}
		},
	}
}

// values appends the values of the object. An expression that fails adds none.
func (s *Spec) values(all []string, r *cel.Reader, o *event.Object) []string {
	for i, p := range s.programs {
		if field := s.fields[i]; field != nil {
			if value, reading := r.Field(field); reading == equality.Known {
				if value != "" {
					all = append(all, value)
				}
				continue
			}
		}
		values, err := r.Keys(all, p)
		if err != nil {
			s.failures.Inc()
			s.warn(err, o)
			continue
		}
		all = values
	}
	return all
}

// The names of the indexes that every source has.
const (
	ByName      = "name"      // metadata.name
	ByNamespace = "namespace" // metadata.namespace; "" for cluster-scoped objects
	ByOwner     = "owner"     // metadata.ownerReferences[*].uid
)

// Builtins returns the names of the indexes that every source has.
func Builtins() []string { return []string{ByName, ByNamespace, ByOwner} }

// builtins is a constant table.
var builtins = map[string]func(*event.Object) []string{
	ByName:      func(o *event.Object) []string { return []string{o.Key().Name} },
	ByNamespace: func(o *event.Object) []string { return []string{o.Key().Namespace} },
	ByOwner:     owners,
}

// builtinValues returns the values of an entry for a built-in index. They share no memory with the
// text of the object, like all values.
func builtinValues(index string, e entry) []string {
	namespace, name := e.base().names()
	switch index {
	case ByName:
		return []string{name}
	case ByNamespace:
		return []string{namespace}
	}
	uids := owners(e.load())
	for i := range uids {
		uids[i] = strings.Clone(uids[i])
	}
	return uids
}

func owners(o *event.Object) (uids []string) {
	for ref := range o.Raw().Path("metadata", "ownerReferences").Elems() {
		if uid := ref.Get("uid").Str(); uid != "" {
			uids = append(uids, uid)
		}
	}
	return uids
}
