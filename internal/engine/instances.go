package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// instance is an open sink or handler.
type instance[T interface{ Close(context.Context) error }] struct {
	value   T
	content string // its kind, its configuration, and the contents of its files
	version string // differs for each opened instance
	workers int    // the number of concurrent calls that a handler is opened for
	view    *view  // the look-ups of a handler
	// slots bounds the calls of a handler that belongs to a scope; nil: its workers are those of
	// all its routes
	slots chan struct{}
}

// OpenComponents opens the sinks and handlers, except for those that old has open already.
func (s *Set) OpenComponents(ctx context.Context, old *Set) error {
	s.opened = old.opened
	s.sinks, s.handlers = make(map[string]*instance[plugins.Sink]), make(map[string]*instance[plugins.Handler])
	if err := s.Remote.open(&old.Remote); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Plan.Config.Sinks)) {
		// The workers of the fleet open a sink that only their routes use.
		if s.Remote.only(name) {
			continue
		}
		if err := s.openSink(ctx, old, name); err != nil {
			return fmt.Errorf("sinks.%s: %w", name, err)
		}
	}
	// An instance belongs to one scope, so a handler may be opened several times, or not at all.
	uses := s.handlerUses()
	for _, name := range slices.Sorted(maps.Keys(s.Plan.Config.Handlers)) {
		if !slices.ContainsFunc(uses, func(u handlerUse) bool { return u.handler == name }) {
			s.env.Log.Warn("handler is not opened, because no route uses it", "handler", name)
		}
	}
	for _, use := range uses {
		if err := s.openHandler(ctx, old, use); err != nil {
			return fmt.Errorf("handlers.%s: %w", use.handler, err)
		}
	}
	return nil
}

// handlerUse is the use of a handler by the routes of one scope. Each scope has an instance of its
// own, so that no data of one reaches another through the memory of a guest or its kv.
type handlerUse struct {
	instance, handler string
	scope             *config.Scope // nil: the routes of the configuration itself
	workers           int
}

// handlerUses returns the uses of handlers, sorted by instance.
func (s *Set) handlerUses() (uses []handlerUse) {
	for i := range s.Plan.Routes {
		p := &s.Plan.Routes[i]
		if p.Handler == "" || s.Remote.has(p) {
			continue
		}
		k := slices.IndexFunc(uses, func(u handlerUse) bool { return u.instance == p.Instance })
		if k < 0 {
			k = len(uses)
			uses = append(uses, handlerUse{instance: p.Instance, handler: p.Handler, scope: p.Scope()})
		}
		if uses[k].workers += p.Concurrency; uses[k].scope != nil {
			uses[k].workers = min(uses[k].workers, maxScopedCalls)
		}
	}
	slices.SortFunc(uses, func(a, b handlerUse) int { return strings.Compare(a.instance, b.instance) })
	return uses
}

// openSink opens a sink, unless old has it already.
func (s *Set) openSink(ctx context.Context, old *Set, name string) error {
	c := s.Plan.Config.Sinks[name]
	kind := compile.KindOf(s.env.Components.Sinks, c.Kind)
	o := opener[plugins.Sink]{kind: kind, name: name, open: func() (plugins.Sink, error) {
		env := s.SinkEnv(name)
		var err error
		if env.KV, err = s.env.Memories.Open(memoryOfSink(name)); err != nil {
			return nil, err
		}
		return kind.Open(ctx, c.Config, env)
	}}
	if instead := s.env.Sinks; instead != nil {
		o.kind, o.open = nil, func() (plugins.Sink, error) { return instead(name) }
	}
	return openComponent(s, s.sinks, old.sinks, c, o)
}

// openHandler opens a handler with its services of the router. If old has it open already, only its
// view is replaced.
func (s *Set) openHandler(ctx context.Context, old *Set, use handlerUse) (err error) {
	name := use.instance
	env := s.handlerEnv(name, use.workers)
	env.Modules.Starting = old.Plan == nil
	if env.KV, err = s.env.Memories.OpenHandler(name); err != nil {
		return err
	}
	// Its look-ups find nothing until fillCaches fills the view.
	v := &view{}
	env.Lookup, env.APIServer = v, s.env.server()
	// A worker of a fleet has no caches and asks the leader.
	if elsewhere := s.env.Lookup; elsewhere != nil {
		env.Lookup = elsewhere(name)
	}
	if answers := s.env.HTTP; answers != nil {
		env.HTTP = answers(use.handler)
	}
	c := s.Plan.Config.Handlers[use.handler]
	kind := compile.KindOf(s.env.Components.Handlers, c.Kind)
	o := opener[plugins.Handler]{kind: kind, name: name, workers: use.workers, open: func() (plugins.Handler, error) {
		return kind.Open(ctx, c.Config, env)
	}}
	if err := openComponent(s, s.handlers, old.handlers, c, o); err != nil {
		return err
	}
	// An instance of old has a view, which it keeps: only the catalog behind it changes.
	if opened := s.handlers[name]; opened.view == nil {
		if opened.view = v; use.scope != nil {
			opened.slots = make(chan struct{}, use.workers)
		}
	}
	s.fillView(use)
	return nil
}

// opener opens one component.
type opener[T any] struct {
	kind    any // may be a [plugins.FileReader]
	name    string
	workers int // the number of concurrent calls that a handler is opened for
	open    func() (T, error)
}

// openComponent opens a component, unless old has the same one open for as many workers.
func openComponent[T interface{ Close(context.Context) error }](s *Set, to, old map[string]*instance[T], c *config.Component, o opener[T]) error {
	var files []string
	if reader, ok := o.kind.(plugins.FileReader); ok {
		files = reader.Files(c.Config)
	}
	content, err := contentOf(c, files)
	if err != nil {
		return err
	}
	if was := old[o.name]; was != nil && was.content == content && was.workers >= o.workers {
		to[o.name] = was
		return nil
	}
	it, err := o.open()
	if err != nil {
		return err
	}
	s.opened++
	to[o.name] = &instance[T]{value: it, content: content, version: fmt.Sprintf("%d", s.opened), workers: o.workers}
	return nil
}

// contentOf identifies the content of a component.
func contentOf(c *config.Component, files []string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%s", c.Kind, c.Config.Identity())
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue // opening the component reports the error
		}
		_, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", fileerr.Explain(err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
