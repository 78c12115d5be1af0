package builtin

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// maxOwners is the number of owners that controller follows, from one to the next.
const maxOwners = 8

// Owner describes the objects of a source that may control others.
type Owner struct {
	Group    string
	Kind     string // empty: unknown
	Resource string // pods
}

// is reports whether a reference is to such an object.
func (o Owner) is(group, kind string) bool {
	if o.Kind == "" {
		return o.Group == group && schema.Plural(kind, o.Resource)
	}
	return o.Group == group && o.Kind == kind
}

// ownerRef is the reference of an object to its controller.
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

// controller is controller(object): the last object of the chain of controllers that are in the
// cache.
func (in *Run) controller(args []ref.Val) ref.Val {
	object, _, err := jsonval.RawOf(args[0], &in.Meter)
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
		in.Meter.Charge(len(found.Raw()))
		next, more := controllerOf(found.Raw(), found.Key().Namespace)
		if !more {
			break
		}
		owner = next
	}
	if found != nil && found.UID() != owner.uid {
		found = nil // so many owners form a cycle
	}
	return in.ownerRecord(owner, found, source)
}

func (in *Run) ownerRecord(owner ownerRef, found *event.Object, source string) ref.Val {
	fields := make(map[string]ref.Val)
	if found != nil {
		owner.namespace = found.Key().Namespace
		fields["object"] = in.Found(source, found)
	}
	for key, value := range map[string]string{
		"apiVersion": owner.apiVersion, "kind": owner.kind, "namespace": owner.namespace, "name": owner.name, "uid": owner.uid,
	} {
		fields[key] = types.String(value)
	}
	return typeset.NewRecord(fields)
}

// owner finds the object of a reference. An object of that name with another uid is not it.
func (in *Run) owner(owner ownerRef) (*event.Object, string) {
	if in.Cache == nil {
		return nil, ""
	}
	group, _, ok := strings.Cut(owner.apiVersion, "/")
	if !ok {
		group = ""
	}
	owners := in.Sources.Owners
	for _, source := range slices.Sorted(maps.Keys(owners)) {
		if !owners[source].is(group, owner.kind) {
			continue
		}
		for _, namespace := range []string{owner.namespace, ""} {
			if o := in.Cache.Get(source, namespace, owner.name); o != nil && o.UID() == owner.uid {
				return o, source
			}
		}
	}
	return nil, ""
}
