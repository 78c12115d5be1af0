package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// keptBy returns the fields that the caches of a plan keep, of the sources that do not keep whole
// objects.
func keptBy(p *compile.Plan) map[string]kept.Set {
	all := make(map[string]kept.Set)
	for name, source := range p.Sources {
		if s := p.Config.Sources[name]; s != nil && s.Cache == config.CacheAuto && !source.Kept.IsWhole() {
			all[name] = source.Kept
		}
	}
	return all
}

// keptFields returns the fields that the cache of a source keeps beside the names and versions of
// objects; nil: whole objects.
func (inv *Inventory) keptFields(source string) []string {
	fields, some := inv.kept[source]
	if !some {
		return nil
	}
	return append([]string{"metadata.creationTimestamp"}, fields.Paths()...)
}

// checkKept refuses a query that reads fields which the cache does not keep: they would seem to be
// absent.
func (inv *Inventory) checkKept(q api.Query, filter *cel.Program) error {
	reads := make(map[string]kept.Set)
	if filter != nil {
		reads = cel.Fields(filter, q.Source)
	}
	if q.Labels != "" {
		reads[q.Source] = reads[q.Source].Or(kept.Of([]string{"metadata", "labels"}))
	}
	for _, source := range slices.Sorted(maps.Keys(reads)) {
		fields, some := inv.kept[source]
		if !some || fields.Covers(reads[source]) {
			continue
		}
		read := "the whole object"
		if missing := fields.Missing(reads[source]); len(missing) > 0 {
			read = strings.Join(missing, ", ")
		}
		return &api.QueryError{Message: fmt.Sprintf("the query reads %s, which the cache of source %q does not keep (cache: auto): "+
			"give the source cache: full, or an index that reads it", read, source)}
	}
	return nil
}
