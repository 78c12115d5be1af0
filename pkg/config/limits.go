package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/config/files"
)

// The limits of fragments. They bound the harm that the author of a fragment can do. The numbers
// and sizes are those of all fragments, because one with a mistake costs as much.
const (
	maxFragments  = 1000               // fragments of a prefix
	maxFragment   = 4 * files.MaxSize  // bytes of all fragments of a prefix
	maxRoutes     = 1000               // routes of a prefix
	maxObjects    = 5000               // objects of all prefixes
	maxObjectSize = 16 * files.MaxSize // bytes of all objects
	minReevaluate = time.Minute
)

// usage is the number and the size of fragments.
type usage struct{ fragments, bytes int }

// exceeds adds a fragment unless a limit is exceeded then.
func (u *usage) exceeds(f *Fragment, fragments, bytes int) (number, size bool) {
	if number, size = u.fragments+1 > fragments, u.bytes+len(f.Data) > bytes; !number && !size {
		u.fragments, u.bytes = u.fragments+1, u.bytes+len(f.Data)
	}
	return number, size
}

// usages has the usage of each prefix, and that of all objects with an empty one.
type usages map[string]*usage

func (u usages) of(prefix string) *usage {
	if u[prefix] == nil {
		u[prefix] = &usage{}
	}
	return u[prefix]
}

// add counts a fragment, also one with mistakes. The error says that it is beyond a limit.
func (u usages) add(f *Fragment) error {
	kind, remedy, prefix := "files", "join files", f.Scope.Prefix
	if f.Object != nil {
		kind, remedy = "objects", "remove some"
	}
	if number, size := u.of(prefix).exceeds(f, maxFragments, maxFragment); number {
		return fmt.Errorf("is one of more than %d %s of %s: %s", maxFragments, kind, prefix, remedy)
	} else if size {
		return fmt.Errorf("the %s of %s are larger than 4 MiB together: remove some", kind, prefix)
	}
	if f.Object == nil {
		return nil
	}
	if number, size := u.of("").exceeds(f, maxObjects, maxObjectSize); number {
		return fmt.Errorf("is one of more than %d objects of all namespaces: remove some", maxObjects)
	} else if size {
		return errors.New("is beyond the limit of 16 MiB for the objects of all namespaces: remove some")
	}
	return nil
}

// Names has the names and ids of the routes of accepted fragments and their number, by prefix.
type Names map[string]*named

// named has the names of one prefix.
type named struct {
	routes     int
	partitions int
	names, ids map[string]Problem // a problem at the first use
}

// Add adds the routes of a fragment without problems. With problems, it adds nothing.
func (n Names) Add(f *Fragment) (problems Problems) {
	u := n[f.Scope.Prefix]
	if u == nil {
		u = &named{names: make(map[string]Problem), ids: make(map[string]Problem)}
		n[f.Scope.Prefix] = u
	}
	routes := f.Config.Routes
	if u.routes+len(routes) > maxRoutes {
		return Problems{{File: f.Name, Message: fmt.Sprintf("the files of %s have more than %d routes: remove some", f.Scope.Prefix, maxRoutes)}}
	}
	partitions := u.partitions
	for _, r := range routes {
		if r.Workers != nil {
			if partitions += r.Workers.Partitions; partitions > f.Scope.Partitions {
				problems = append(problems, r.Node.At("workers").Problemf("the routes of %s up to here have %d partitions, and %s grants %d: use fewer, or ask for more there",
					f.Scope.Prefix, partitions, f.Scope.Granted, f.Scope.Partitions))
			}
		}
		if first, ok := u.names[r.Name]; ok {
			problems = append(problems, r.Node.At("name").Problemf("route %q occurs twice, first in %s:%d: choose another name", r.Name, first.File, first.Line))
		} else if first, ok := u.ids[r.ID]; ok {
			problems = append(problems, r.Node.At("id").Problemf("the route in %s:%d has the id %q: an id is the name, unless it is set; set another one", first.File, first.Line, r.ID))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	u.routes, u.partitions = u.routes+len(routes), partitions
	for _, r := range routes {
		u.names[r.Name], u.ids[r.ID] = r.Node.Problemf(""), r.Node.Problemf("")
	}
	return nil
}
