package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Durable has the names of the routes whose deltas of new objects wait until the object is on disk.
type Durable []string

// durableOf returns the routes that deliver the ends of objects, if the state is on disk; see
// spec.Settings.DeliversEnds.
func durableOf(p *compile.Plan) (names Durable) {
	if p.Config.State.Dir == "" {
		return nil
	}
	for i := range p.Routes {
		r := &p.Routes[i]
		ends := slices.Contains(r.Ops, event.Deleted.String()) || slices.Contains(r.Ops, event.Deselected.String())
		if ends && r.When == nil && len(r.Upstream) == 0 {
			names = append(names, r.Name)
		}
	}
	return names
}

// String returns the text of `router check`; empty: no route waits.
func (d Durable) String() string {
	if len(d) == 0 {
		return ""
	}
	return fmt.Sprintf("new objects are on disk before their delivery, because deletes are delivered, too, by %s\n", strings.Join(d, ", "))
}
