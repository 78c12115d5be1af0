package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

const (
	// caughtUpAfter is how long after its sources have synced a route takes what happened while the router was down for seen: API servers
	// send that as soon as a watch is open.
	caughtUpAfter = time.Second
	// lookAgain is the pause after a round of looking that was not completed.
	lookAgain = time.Second
	// lookShare is the part of the time, as 1/n, that a round of looking takes from the watches, in strides of lookStride objects.
	lookShare  = 10
	lookStride = 256
)

// when compiles the condition of a route, and checks what goes with it.
func (c *compiler) when(r *config.Route, emit *expr.Program) *expr.Program {
	if emit != nil && r.When == nil && r.For == 0 && len(r.FedBy) == 0 { // whoever feeds it may have one
		for _, name := range []string{"since", "late", "repeat"} {
			if emit.Uses(name) {
				c.problems = append(c.problems, r.Emit.Problem(1, 0, name+" is about a condition: set when too, or remove it"))
			}
		}
	}
	when := c.condition(r.When, expr.When, r.From)
	for _, name := range r.From {
		if s := c.cfg.Sources[name]; when != nil && s != nil && s.Cache == config.CacheIdentity {
			c.problems = append(c.problems, r.Node.At("when").Problemf(
				"is asked about what is cached, and source %q keeps identities only: give it cache: full or cache: metadata", name))
		}
	}
	if when != nil && c.advise && r.Check == 0 && len(r.Requeue) == 0 && len(when.Sources()) > 0 {
		c.warnf(r.Node.At("when").Problemf("looks up objects of other sources, and is asked again only when its own object changes: say with " +
			"requeue which objects depend on them, or with check how often to look"))
	}
	if when != nil && when.Uses("now") && r.Check == 0 {
		c.problems = append(c.problems, r.Node.At("when").Problemf(
			"depends on now, and nothing happens to an object when time goes by: say with check how often to look, as in check: 1h"))
	}
	return when
}

// condition is a filter or a when: nil if there is none, or a mistake in it.
func (c *compiler) condition(f *config.Filter, usage expr.Usage, from []string) *expr.Program {
	if f == nil {
		return nil
	}
	if f.By == nil {
		return c.compile(&f.Expr, usage, from...)
	}
	programs := make(map[string]*expr.Program)
	for _, source := range from {
		if e := f.By[source]; e != nil && e.Text != "" {
			if p := c.compile(e, usage, source); p != nil {
				programs[source] = p
			}
		}
	}
	if len(programs) != len(from) || len(programs) == 0 {
		return nil // reported
	}
	return expr.BySource(programs)
}

// when puts together what a rule about time needs at run time.
func (r *router) when(p *routePlan) pipeline.When {
	return pipeline.When{
		For: p.For, Every: p.Every,
		CaughtUp: r.caughtUp(p), Resource: r.resource,
		Object: func(source string, key event.Key) *event.Object {
			for _, spec := range r.plan.sources[source].watches {
				if o := r.stores[spec].Get(key); o != nil {
					return o
				}
			}
			return nil
		},
	}
}

// filter makes a filter of a program, which is that of f.
func (r *router) filter(route string, program *expr.Program, f *config.Filter, cache expr.Cache) filters.Filter {
	absent := r.metrics.RouteErrors.WithLabelValues(route, "absent")
	return filters.NewCEL(filters.CELConfig{
		Program: program, Cache: cache, Log: r.log.With("route", route), Absent: absent.Inc,
		Place: func(e *expr.EvalError) string { return r.place(f.For(e.Source), e) },
	})
}

// conditionVersion says what a condition is made of: if it is the same, it holds for the same objects.
func (p *plan) conditionVersion(route *routePlan) string {
	var texts []string
	for _, source := range route.From {
		texts = append(texts, source, route.When.For(source).Text)
	}
	text, err := json.Marshal([]any{texts, p.defines()})
	if err != nil {
		return "" // strings can always be marshalled
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// caughtUp returns a channel that is closed when a route has seen what happened while the router was down; nil: there is nothing to wait for.
func (r *router) caughtUp(p *routePlan) <-chan struct{} {
	if r.state == nil || r.seen != nil {
		return r.seen
	}
	caughtUp, before := make(chan struct{}), r.waits[p.Name]
	r.waits[p.Name] = func(ctx context.Context) {
		if before != nil {
			before(ctx)
		}
		for _, source := range p.From {
			select {
			case <-r.factory.Synced(source):
			case <-ctx.Done():
				return
			}
		}
		if pause(ctx, caughtUpAfter) == nil {
			close(caughtUp)
		}
	}
	return caughtUp
}

// looks are the rounds of looking at all objects, by route.
type looks struct {
	cancel map[string]context.CancelFunc
	wait   sync.WaitGroup
}

// startLooks has the routes with a condition look at all objects where they have to, and as often as they want to. Those that a change keeps
// go on as they are.
func (r *router) startLooks(ctx context.Context, l *looks, change *pipeline.Change) {
	if l.cancel == nil {
		l.cancel = make(map[string]context.CancelFunc)
	}
	kept := func(name string) bool { return change != nil && slices.Contains(change.Kept(), name) }
	for name, cancel := range l.cancel {
		if !kept(name) {
			cancel()
			delete(l.cancel, name)
		}
	}
	for i := range r.plan.routes {
		p := &r.plan.routes[i]
		if p.when == nil || l.cancel[p.Name] != nil {
			continue
		}
		looking, cancel := context.WithCancel(ctx)
		l.cancel[p.Name] = cancel
		lo := looker{pipeline: r.pipeline, factory: r.factory, route: p.Name, sources: p.From, lookups: p.lookups(), check: p.Check, router: r}
		l.wait.Go(func() { lo.run(looking) })
	}
}

// looker looks at all objects of one route.
type looker struct {
	router           *router
	pipeline         *pipeline.Pipeline
	factory          *informer.Factory
	route            string
	sources, lookups []string
	check            time.Duration
}

// run looks once if that is due, or if a check may have been missed, and then at each check, until ctx is done.
func (l *looker) run(ctx context.Context) {
	for _, source := range slices.Concat(l.lookups, l.sources) {
		select {
		case <-l.factory.Synced(source):
		case <-ctx.Done():
			return
		}
	}
	looked := false
	for l.pipeline.NeedsLook(l.route) {
		if looked = l.tryRound(ctx); looked {
			break
		}
		if pause(ctx, lookAgain) != nil {
			return
		}
	}
	// Whoever is restarted more often than that would never look. What happened while the router was down is seen first.
	if l.check > 0 && !looked && pause(ctx, caughtUpAfter) == nil {
		l.tryRound(ctx)
	}
	for l.check > 0 && pause(ctx, l.check) == nil {
		l.tryRound(ctx)
	}
}

func (l *looker) tryRound(ctx context.Context) bool {
	err := l.round(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, informer.ErrNotRunning) {
		l.router.log.Warn("a condition could not be asked about all objects, it is tried again", "route", l.route, "err", err)
	}
	return err == nil
}

// round looks at all objects once, slowly enough for the watches to go on meanwhile.
func (l *looker) round(ctx context.Context) error {
	look, err := l.pipeline.Look(l.route)
	if err != nil {
		return err
	}
	began, n := time.Now(), 0
	pace := func(ctx context.Context) {
		if n++; n%lookStride == 0 {
			_ = pause(ctx, time.Since(began)*(lookShare-1)) // who calls it looks at ctx, too
			began = time.Now()
		}
	}
	for _, source := range l.sources {
		if _, err := l.factory.ResyncPaced(ctx, source, look.Admit, pace); err != nil {
			return fmt.Errorf("source %q: %w", source, err)
		}
	}
	look.End(func(source string) bool {
		status, ok := l.factory.Status(source)
		return ok && status.Synced
	})
	return nil
}
