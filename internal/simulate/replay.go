package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/router/engine"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// ReplayOptions says how a recording is played.
type ReplayOptions struct {
	Recording io.Reader
	// Speed is how many times as fast as recorded: time itself passes so for routes and handlers,
	// beginning with the time of the recording. 0: as fast as the routes take it, at the present
	// time.
	Speed float64
	// to the sinks of the configuration, and send the requests of handlers; else all events are
	// printed, and requests fail
	Deliver bool
	Stdout  io.Writer // where they are printed, and where stdout sinks write
	Drain   time.Duration
}

// Replayed says how it went.
type Replayed struct {
	Header  recording.Header
	Deltas  int           // that sources were told, those of the first lists included
	Took    time.Duration // until all was told
	CutOff  error         // the recording has no end; nil: it has
	Pending error         // what was not delivered in the end; nil: nothing
	// GivenUp is how many deltas were, be it that no sink took them or that something about them
	// failed. The log has some of the reasons.
	GivenUp int64
}

// Replay lets the routes of the configuration work on a recording: what the sources of it saw, the
// sources of the same names see, as far as their namespaces and selectors let it. There is no state
// folder. The error says why it did not come to its end.
func (o *Offline) Replay(ctx context.Context, opts ReplayOptions) (done Replayed, err error) {
	in, err := recording.NewReader(opts.Recording, recording.Limits{})
	if err != nil {
		return done, err
	}
	defer in.Close()
	p := &player{in: in, speed: opts.Speed, clock: timer.Real()}
	done.Header = in.Header()
	if opts.Speed > 0 {
		p.clock = timer.Scaled(done.Header.Time, opts.Speed)
	}
	if err := p.open(ctx, o, opts); err != nil {
		return done, errors.Join(err, p.e.Close(ctx))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	p.awaitable()
	p.e.Start(running, running)
	began := time.Now()
	err = p.play(ctx)
	done.Took, done.Deltas = time.Since(began), p.deltas
	if errors.Is(err, recording.ErrCutOff) {
		done.CutOff, err = err, nil
	}
	p.awaitReady()
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), opts.Drain)
	defer cancel()
	done.Pending = p.e.Pipeline.Drain(draining)
	stop()
	p.e.Waits.Wait()
	p.e.Watches.Finish()
	done.GivenUp = p.letters.n.Load()
	return done, errors.Join(err, p.e.Close(ctx))
}

// player tells the sources of a configuration what a recording says.
type player struct {
	in      *recording.Reader
	e       *engine.Engine
	clock   timer.Clock
	speed   float64
	letters *countedLetters
	watches map[string][]*informer.Watch    // by the source whose lines they are told
	feeds   map[string][]*informer.Injector // likewise; of a source that has had a line
	deltas  int
	ready   map[string]chan struct{} // by route that looks things up; closed once that is there
	rescans injectedRescans
	due     chan string // routes that are to look again
}

func (p *player) open(ctx context.Context, o *Offline, opts ReplayOptions) error {
	e := o.newEngine(p.clock, func(env *engine.Env) { env.Stdout = opts.Stdout })
	p.e = e
	if opts.Deliver {
		e.HTTP = nil
	} else {
		var err error
		if e.Sinks, err = printing(ctx, e); err != nil {
			return err
		}
	}
	if err := e.OpenSet(ctx); err != nil {
		return err
	}
	e.OpenFactory(nil)
	p.due = make(chan string, len(e.Set.Plan.Routes)) // each is due once at a time
	p.rescans = injectedRescans{e: e, clock: p.clock, due: func(route string) {
		select {
		case p.due <- route:
		default:
		}
	}}
	p.letters = &countedLetters{log: &pipeline.LogDeadLetters{Log: e.Log}}
	routes := e.Set.Routes()
	if err := p.attach(ctx); err != nil {
		return err
	}
	if err := e.OpenPipeline(pipeline.Config{Routes: routes, DeadLetters: p.letters}); err != nil {
		return err
	}
	return e.OpenSaved(ctx, nil)
}

// rescanDue has routes look at all objects, be it for the first time or because their reevaluation
// is due.
func (p *player) rescanDue(ctx context.Context) error {
	ready := func(route string) {
		if ready := p.ready[route]; ready != nil {
			<-ready
		}
	}
	if err := p.rescans.start(ctx, ready); err != nil {
		return err
	}
	for {
		select {
		case route := <-p.due:
			if err := p.rescans.rescan(ctx, route); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// awaitable notes when routes have what they look up.
func (p *player) awaitable() {
	p.ready = make(map[string]chan struct{})
	for name, wait := range p.e.Set.Waits {
		ready := make(chan struct{})
		p.ready[name] = ready
		p.e.Set.Waits[name] = func(ctx context.Context) {
			wait(ctx)
			close(ready)
		}
	}
}

// awaitReady waits for the routes that look things up in sources whose objects are all there.
// Others get nothing, as in a live router.
func (p *player) awaitReady() {
	for i := range p.e.Set.Plan.Routes {
		route := &p.e.Set.Plan.Routes[i]
		unsynced := func(source string) bool {
			status, _ := p.e.Factory.Status(source)
			return !status.Synced
		}
		if ready := p.ready[route.Name]; ready != nil && !slices.ContainsFunc(route.Lookups(), unsynced) {
			<-ready
		}
	}
}

// attach finds for each watch the source whose lines it is told: of those that share it the first
// that was recorded. A watch of which nothing was recorded has nothing.
func (p *player) attach(ctx context.Context) error {
	h := p.in.Header()
	p.watches, p.feeds = make(map[string][]*informer.Watch), make(map[string][]*informer.Injector)
	for _, wanted := range p.e.Set.WantedWatches() {
		w := p.e.Factory.Watch(wanted.Spec, wanted.Store, wanted.Sources...)
		i := slices.IndexFunc(wanted.Sources, func(s informer.Source) bool { _, ok := h.Sources[s.Name]; return ok })
		if i >= 0 {
			name := wanted.Sources[i].Name
			p.watches[name] = append(p.watches[name], w)
			continue
		}
		p.e.Log.Warn("a source is not in the recording, and has no objects", "source", wanted.Sources[0].Name)
		feed, err := w.Injector("")
		if err == nil {
			err = feed.Listed(ctx)
		}
		if err != nil {
			return fmt.Errorf("sources.%s: %w", wanted.Sources[0].Name, err)
		}
	}
	for name, source := range h.Sources {
		if c := p.e.Set.Plan.Config.Sources[name]; c == nil {
			p.e.Log.Warn("the configuration has no such source; what was recorded of it is left out", "source", name)
		} else if c.Resource != source.Resource {
			return fmt.Errorf("sources.%s: it is of %s, and what was recorded under this name is of %s", name, c.Resource, source.Resource)
		}
	}
	if name := p.e.Set.Plan.Config.Cluster.Name; name != h.Cluster {
		p.e.Log.Warn("the recording is of another cluster, so events have other ids than they had there", "cluster", name, "recorded", h.Cluster)
	}
	return nil
}

// play tells all lines, each at its time. It returns nil at the end.
func (p *player) play(ctx context.Context) error {
	for ctx.Err() == nil {
		l, err := p.in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := p.await(ctx, l.At); err != nil {
			return err
		}
		if err := p.tell(ctx, &l); err != nil {
			return err
		}
		if l.Op == recording.Synced || len(p.due) > 0 {
			if err := p.rescanDue(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// await waits until it is time for a line.
func (p *player) await(ctx context.Context, at time.Duration) error {
	due := p.in.Header().Time.Add(at)
	if p.speed == 0 || !due.After(p.clock.Now()) {
		return ctx.Err()
	}
	now := make(chan struct{})
	t := p.clock.NewTimer(func() { close(now) })
	defer t.Stop()
	t.Set(due)
	for {
		select {
		case <-now:
			return nil
		case route := <-p.due:
			if err := p.rescans.rescan(ctx, route); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell tells a line to the watches that are told of its source.
func (p *player) tell(ctx context.Context, l *recording.Line) error {
	if l.Op == recording.End {
		return nil
	}
	if p.feeds[l.Source] == nil {
		for _, w := range p.watches[l.Source] {
			feed, err := w.Injector(l.Kind)
			if err != nil {
				return fmt.Errorf("sources.%s: %w", l.Source, err)
			}
			p.feeds[l.Source] = append(p.feeds[l.Source], feed)
			p.rescans.feeds = append(p.rescans.feeds, feed)
		}
	}
	for _, f := range p.feeds[l.Source] {
		if err := tell(ctx, f, l); err != nil {
			return fmt.Errorf("source %q: %w", l.Source, err)
		}
	}
	if l.Op != recording.Synced && len(p.feeds[l.Source]) > 0 {
		p.deltas++
	}
	return nil
}

func tell(ctx context.Context, f *informer.Injector, l *recording.Line) error {
	switch l.Op {
	case recording.Existing:
		return f.Exists(ctx, l.Object)
	case recording.Synced:
		return f.Listed(ctx)
	case recording.Deleted:
		return f.Remove(ctx, event.Deleted, l.Object, l.Stale)
	case recording.Deselected:
		return f.Remove(ctx, event.Deselected, l.Object, l.Stale)
	case recording.Sync:
		metadata := rawjson.Value(l.Object).Get("metadata")
		return f.SyncAt(ctx, event.Key{Namespace: metadata.Get("namespace").Str(), Name: metadata.Get("name").Str()}, l.Round)
	case recording.Added, recording.Updated, recording.End:
	}
	return f.Put(ctx, l.Object)
}

// countedLetters counts what is given up.
type countedLetters struct {
	log *pipeline.LogDeadLetters
	n   atomic.Int64
}

// Add implements pipeline.DeadLetterer.
func (c *countedLetters) Add(ctx context.Context, letters []checkpoint.Letter) error {
	c.n.Add(int64(len(letters)))
	return c.log.Add(ctx, letters)
}

// Remove implements pipeline.DeadLetterer. Nothing is put through again.
func (c *countedLetters) Remove(context.Context, []uint64) (int, error) { return 0, nil }

// printing returns sinks that print, in place of those of the configuration.
func printing(ctx context.Context, e *engine.Engine) (func(name string) (plugins.Sink, error), error) {
	printer := compile.KindOf(e.Components.Sinks, "stdout")
	if printer == nil {
		return nil, errors.New("there is no stdout sink to print events with")
	}
	defaults, problems := config.ParseNode("", []byte("{}"))
	if len(problems) > 0 {
		return nil, problems
	}
	return func(name string) (plugins.Sink, error) {
		return printer.Open(ctx, defaults, e.Set.SinkEnv(name))
	}, nil
}
