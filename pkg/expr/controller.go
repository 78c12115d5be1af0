package expr

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
	"github.com/deltarouter/deltarouter/pkg/schema"
)

// maxOwners is how many owners controller follows, one from the other.
const maxOwners = 8

// Owner says what objects a source has that may control others.
type Owner struct {
	Group    string
	Kind     string // empty: not known
	Resource string // pods
}

// is reports whether a reference is to such an object.
func (o Owner) is(group, kind string) bool {
	if o.Kind == "" {
		return o.Group == group && schema.Plural(kind, o.Resource)
	}
	return o.Group == group && o.Kind == kind
}

// ownerRef is the reference of an object to the one that controls it.
type ownerRef struct{ apiVersion, kind, namespace, name, uid string }

func controllerOf(object rawjson.Value, namespace string) (found ownerRef, ok bool) {
	for owner := range object.Path("metadata", "ownerReferences").Elems() {
		if owner.Get("controller").IsTrue() {
			return ownerRef{
				apiVersion: owner.Get("apiVersion").Str(), kind: owner.Get("kind").Str(), namespace: namespace,
				name: owner.Get("name").Str(), uid: owner.Get("uid").Str(),
			}, true
		}
	}
	return found, false
}

// controller is controller(object): the last that is found by going from object to controller as long as these are in the cache.
func (in *evaluation) controller(args []ref.Val) ref.Val {
	object, _, err := in.textOf(args[0])
	if err != nil {
		return types.WrapErr(err)
	}
	owner, ok := controllerOf(object, object.Path("metadata", "namespace").Str())
	if !ok {
		return types.NullValue
	}
	var found *event.Object
	var source string
	for range maxOwners {
		if found, source = in.owner(owner); found == nil {
			break
		}
		in.meter.charge(len(found.Raw()))
		next, more := controllerOf(found.Raw(), found.Key().Namespace)
		if !more {
			break
		}
		owner = next
	}
	if found != nil && found.UID() != owner.uid {
		found = nil // that many owners end somewhere
	}
	return in.ownerRecord(owner, found, source)
}

func (in *evaluation) ownerRecord(owner ownerRef, found *event.Object, source string) ref.Val {
	fields := make(map[string]ref.Val)
	if found != nil {
		owner.namespace = found.Key().Namespace
		fields["object"] = in.found(source, found)
	}
	for key, value := range map[string]string{
		"apiVersion": owner.apiVersion, "kind": owner.kind, "namespace": owner.namespace, "name": owner.name, "uid": owner.uid,
	} {
		fields[key] = types.String(value)
	}
	return newRecord(fields)
}

// owner finds an object by the reference to it. One of that name with another uid is another one.
func (in *evaluation) owner(owner ownerRef) (*event.Object, string) {
	if in.cache == nil {
		return nil, ""
	}
	group, _, ok := strings.Cut(owner.apiVersion, "/")
	if !ok {
		group = ""
	}
	owners := in.program.env.owners
	for _, source := range slices.Sorted(maps.Keys(owners)) {
		if !owners[source].is(group, owner.kind) {
			continue
		}
		for _, namespace := range []string{owner.namespace, ""} {
			if o := in.cache.Get(source, namespace, owner.name); o != nil && o.UID() == owner.uid {
				return o, source
			}
		}
	}
	return nil, ""
}

// object is a call of a function whose arguments are objects.
func (l *linker) object(n int, u unit, e ast.Expr) {
	var args []any
	for _, arg := range e.AsCall().Args() {
		args = append(args, arg)
	}
	l.edits = append(l.edits, edit{n, e.ID(), args})
	switch e.AsCall().FunctionName() {
	case fnManagers:
		l.managed(u, e)
	case fnController:
		if l.usage == Index {
			l.problem(u, e, "controller() does not exist here: an index sees only object, source and cluster")
			return
		}
		for _, source := range slices.Sorted(maps.Keys(l.env.owners)) {
			l.lookUp(source)
		}
	}
}

// lookUp notes a source that is looked up.
func (l *linker) lookUp(source string) {
	if !slices.Contains(l.sources, source) {
		l.sources = append(l.sources, source)
	}
}
