package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Reads reports whether the configuration has a source of a name, or of a resource.
func (o *Offline) Reads(name, resource string) bool {
	for own, c := range o.plan.Config.Sources {
		if own == name || c.Resource == resource {
			return true
		}
	}
	return false
}

// fit returns the recorded source of each source, and notes where they differ.
func (o *Offline) fit(h *recording.Header) (fits map[string]string, notes []string) {
	fits = make(map[string]string)
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if h.History != nil && h.History.Lost > 0 {
		note("%d records of the time could not be written, and may be missing", h.History.Lost)
	}
	for i := range o.plan.Routes {
		if r := &o.plan.Routes[i]; r.For > 0 && r.When != nil {
			note("route %q: a condition that held at the begin counts from then, so for is exact from %s on", r.Name, h.Time.Add(r.For).Local().Format(time.DateTime))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.plan.Sources)) {
		c := o.plan.Config.Sources[name]
		recorded := recordedFor(h, name, c)
		if recorded == "" {
			without := ""
			if h.History != nil && slices.Contains(h.History.Without, name) {
				without = ": its states are not recorded"
			}
			note("source %q is not in the history%s: it has no objects here", name, without)
			continue
		}
		fits[name] = recorded
		notes = append(notes, o.differences(name, recorded, h.Sources[recorded])...)
	}
	return fits, notes
}

// differences returns notes on a recorded source that another one stands for.
func (o *Offline) differences(name, recorded string, of recording.Source) (notes []string) {
	c, fields := o.plan.Config.Sources[name], o.plan.Sources[name].Kept
	note := func(holds bool, format string, args ...any) {
		if holds {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	note(recorded != name, "source %q is not in the history; it gets the objects of source %q, which has the same resource", name, recorded)
	selects := differs(of.LabelSelector, c.LabelSelector) || differs(of.FieldSelector, c.FieldSelector) ||
		differs(of.NamespaceSelector, c.NamespaceSelector) || len(of.Namespaces) > 0 && !within(c.Namespaces, of.Namespaces)
	note(selects, "source %q selects objects that the recorded one does not, and these are missing", name)
	note(c.NamespaceSelector != "" && of.NamespaceSelector != c.NamespaceSelector, "source %q: its namespaceSelector selects all namespaces here", name)
	if len(of.Kept) == 0 {
		return notes
	}
	missing := setOf(of.Kept).Missing(fields)
	note(fields.IsWhole(), "source %q was recorded with some fields only (cache: auto), and others are absent here: it has %s", name, strings.Join(of.Kept, ", "))
	note(len(missing) > 0, "source %q was recorded with some fields only (cache: auto). The rules read others, which are absent here: %s", name, strings.Join(missing, ", "))
	return notes
}

// differs reports whether a recorded selector leaves objects out that another one may select.
func differs(recorded, now string) bool { return recorded != "" && recorded != now }

// recordedFor returns the recorded source of a source: the one of its name, or else one of its
// resource, if possible with all objects. Empty: there is none.
func recordedFor(h *recording.Header, name string, c *config.Source) string {
	if of, ok := h.Sources[name]; ok && of.Resource == c.Resource {
		return name
	}
	best := ""
	for _, other := range slices.Sorted(maps.Keys(h.Sources)) {
		of := h.Sources[other]
		if of.Resource != c.Resource {
			continue
		}
		if whole := len(of.Namespaces) == 0 && of.LabelSelector == "" && of.FieldSelector == "" && of.NamespaceSelector == ""; whole || best == "" {
			best = other
		}
	}
	return best
}

// within reports whether all of some namespaces are among others.
func within(some, others []string) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(n string) bool { return !slices.Contains(others, n) })
}

func setOf(paths []string) kept.Set {
	all := kept.Identity()
	for _, path := range paths {
		if one, err := kept.Parse(path); err == nil {
			all = all.Or(one)
		}
	}
	return all
}
