package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// labelsAge is the maximum age of cached namespace labels in a check of a grant.
const labelsAge = 10 * time.Second

// grant is a parsed [Grant].
type grant struct {
	group, resource string
	subresources    []string
	namespaces      []string        // nil: all, or those that selector matches
	selector        labels.Selector // nil: no selector
	verbs           []string
}

// allowance contains the grants of a sink.
type allowance struct {
	grants []grant
	labels func(ctx context.Context, namespace string) (found labels.Set, err error)
	clock  timer.Clock

	mu    sync.Mutex
	known map[string]namespaceLabels
}

type namespaceLabels struct {
	labels labels.Set // nil: the namespace does not exist
	at     time.Time
}

func newAllowance(grants []grantConfig, clock timer.Clock, ask func(context.Context, string) (labels.Set, error)) (*allowance, error) {
	a := &allowance{labels: ask, clock: clock, known: make(map[string]namespaceLabels)}
	for _, g := range grants {
		group, _, resource, err := parseResource(g.Resource)
		if err != nil {
			return nil, err
		}
		made := grant{group: group, resource: resource, subresources: g.Subresources, namespaces: g.Namespaces, verbs: g.Verbs}
		if g.NamespaceSelector != "" {
			if made.selector, err = labels.Parse(g.NamespaceSelector); err != nil {
				return nil, err
			}
		}
		a.grants = append(a.grants, made)
	}
	return a, nil
}

// refusedError means that no grant allows an operation.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// knows reports whether a grant concerns an API group. Otherwise the API server is not queried
// about the group.
func (a *allowance) knows(group string) bool {
	return slices.ContainsFunc(a.grants, func(g grant) bool { return g.group == group })
}

// check returns a *refusedError if no grant allows an operation, and another error if the API
// server does not answer.
func (a *allowance) check(ctx context.Context, op *operation) error {
	what := op.target.resourceText()
	if op.subresource != "" {
		what += ", subresource " + op.subresource + ","
	}
	why := "says nothing of " + what
	for i := range a.grants {
		g := &a.grants[i]
		switch {
		case g.group != op.target.group || g.resource != op.target.resource, !g.covers(op.subresource):
			continue
		case !slices.Contains(g.verbs, op.verb):
			if why[0] == 's' {
				why = fmt.Sprintf("does not grant %s on %s", op.verb, what)
			}
			continue
		}
		ok, err := a.in(ctx, g, op.target.where())
		if err != nil {
			return err
		}
		if ok {
			return nil
		}
		why = fmt.Sprintf("does not grant %s on %s in namespace %q", op.verb, what, op.target.where())
		if op.target.where() == "" {
			why = fmt.Sprintf("grants %s on %s only in some namespaces, and this object has none", op.verb, what)
		}
	}
	return &refusedError{"allow " + why}
}

// covers reports whether the grant concerns a subresource; empty: the object itself.
func (g *grant) covers(subresource string) bool {
	if subresource == "" {
		return len(g.subresources) == 0
	}
	return slices.Contains(g.subresources, subresource)
}

// in reports whether the grant is valid in a namespace.
func (a *allowance) in(ctx context.Context, g *grant, namespace string) (bool, error) {
	switch {
	case g.selector == nil && g.namespaces == nil:
		return true, nil
	case g.selector == nil:
		return slices.Contains(g.namespaces, namespace), nil
	case namespace == "":
		return false, nil
	}
	found, err := a.labelsOf(ctx, namespace)
	return err == nil && found != nil && g.selector.Matches(found), err
}

func (a *allowance) labelsOf(ctx context.Context, namespace string) (labels.Set, error) {
	now := a.clock.Now()
	a.mu.Lock()
	known, ok := a.known[namespace]
	a.mu.Unlock()
	if ok && now.Sub(known.at) < labelsAge {
		return known.labels, nil
	}
	found, err := a.labels(ctx, namespace)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, old := range a.known { // remove old entries
		if now.Sub(old.at) >= labelsAge {
			delete(a.known, name)
		}
	}
	a.known[namespace] = namespaceLabels{found, now}
	return found, nil
}
