package inspect

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/history/excerpt"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Excerpt implements api.History. The caller needs the right to list the objects.
func (h *History) Excerpt(ctx context.Context, q api.ExcerptQuery, out io.Writer) error {
	inv := h.objects.Load()
	for _, name := range q.Sources {
		if err := access.Check(ctx, inv.rights("list", name, q.Namespace, "")...); err != nil {
			return err
		}
		if inv.config.Sources[name] == nil {
			return unknown("there is no source %q%s", name, config.Suggest(name, slices.Sorted(maps.Keys(inv.config.Sources))))
		}
	}
	var gaps api.HistoryGaps
	reader, done, err := h.reader(ctx, &gaps)
	if err != nil {
		return err
	}
	defer done()
	begin := reader.First()
	span := history.Span{From: q.Since, To: reader.End()}
	if !q.Until.IsZero() && q.Until.Before(span.To) {
		span.To = q.Until
	}
	if span.From.Before(begin) {
		span.From = begin
	}
	if begin.IsZero() || span.From.After(span.To) {
		return unknown("the history has nothing of that time: it begins at %s", begin.UTC().Format(time.RFC3339))
	}
	header := recording.Header{Cluster: inv.config.Cluster.Name, Time: span.From.UTC(), Sources: make(map[string]recording.Source), History: &recording.History{Begin: begin.UTC()}}
	if header.History.Lost, err = lostIn(ctx, reader, span); err != nil {
		return err
	}
	for _, name := range q.Sources {
		if c := inv.config.Sources[name]; inv.hasStates(name) {
			header.Sources[name] = recording.Source{
				Resource: c.Resource, Namespaces: c.Namespaces, NamespaceSelector: c.NamespaceSelector,
				LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector, Cache: c.Cache, Drop: c.ExcludeFields, Kept: inv.keptFields(name),
			}
		} else {
			header.History.Without = append(header.History.Without, name)
		}
	}
	w, err := recording.NewWriter(out, true, header)
	if err != nil {
		return fmt.Errorf("the excerpt: %w", err)
	}
	o := excerpt.Options{Span: span, Header: header, Cached: inv.cachedOf, Namespace: q.Namespace, Initial: q.Initial}
	if err := excerpt.Write(ctx, reader, w, o); err != nil {
		return err // without a flush: the answer has not begun, or is cut off
	}
	return w.Close()
}

// hasStates reports whether the history has the states of the objects of a source.
func (inv *Inventory) hasStates(source string) bool {
	h := inv.config.History
	if of, differs := h.Sources[source]; !h.Objects || differs && (of.None || !of.Objects) {
		return false
	}
	group, _, resource, err := config.ParseResource(inv.config.Sources[source].Resource)
	return err == nil && (group != "" || resource != "secrets")
}

// cachedOf returns the cached objects of a source that has no Secrets.
func (inv *Inventory) cachedOf(source string) iter.Seq[excerpt.Object] {
	return func(yield func(excerpt.Object) bool) {
		for _, store := range inv.stores[source] {
			for o := range store.All() {
				text := func() string {
					if o.IsBare() {
						return ""
					}
					return string(o.Raw())
				}
				created, _ := time.Parse(time.RFC3339, o.Raw().Path("metadata", "creationTimestamp").Str()) // zero: not kept
				if !yield(excerpt.Object{Kind: o.Resource().Kind, Key: o.Key(), Created: created, Text: text}) {
					return
				}
			}
		}
	}
}
