package informer

import (
	"context"
	"slices"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
)

// AnyNamespace reports whether a namespace has the labels of a selector.
func (c *Client) AnyNamespace(ctx context.Context, selector string) (bool, error) {
	return c.api.AnyNamespace(ctx, selector)
}

// finds reports whether watches can follow the namespaces of this one.
func (s *Spec) finds() bool {
	of, ok := (&Spec{NamespaceSelector: s.LabelSelector}).Namespaces()
	return ok && of == *s
}

// finderOf returns the watch that finds the namespaces of a watch; nil: there is none.
func finderOf(spec *Spec, among []*Watch) *Watch {
	of, ok := spec.Namespaces()
	if !ok {
		return nil
	}
	if i := slices.IndexFunc(among, func(w *Watch) bool { return w.spec == of }); i >= 0 {
		return among[i]
	}
	return nil
}

// within returns the namespaces whose objects the watch keeps; nil: all.
func (w *Watch) within() *apply.Namespaces {
	if w.finder == nil {
		return nil
	}
	return w.finder.selection
}

// lead connects each watch that finds namespaces with the watches that follow it.
func lead(watches []*Watch) {
	for _, finder := range watches {
		if finder.selection == nil {
			continue
		}
		var followers []*apply.Applier
		for _, w := range watches {
			if w.finder == finder {
				followers = append(followers, w.applier)
			}
		}
		finder.selection.Lead(followers)
	}
}

// Finds reports whether other watches keep only the objects in the namespaces that this one finds.
// Its saved objects are then restored before it runs.
func (w *Watch) Finds() bool { return w.selection != nil }

// afterNamespaces makes a watch wait until its namespaces are known.
func (w *Watch) afterNamespaces(run func(context.Context)) func(context.Context) {
	within := w.within()
	if within == nil {
		return run
	}
	return func(ctx context.Context) {
		select {
		case <-within.Ready():
		case <-ctx.Done():
			return
		}
		var tidying sync.WaitGroup
		tidying.Go(func() { within.Tidy(ctx, w.applier) })
		run(ctx)
		tidying.Wait()
	}
}
