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
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// ReplayOptions are the options of a replay.
type ReplayOptions struct {
	Recording io.Reader
	// Speed is the speed relative to the recording. The clock of routes and handlers runs at this
	// speed and begins at the time of the recording. 0: the replay runs as fast as possible, and
	// the clock shows the present time.
	Speed float64
	// Deliver delivers events to the configured sinks and sends the requests of handlers. Otherwise
	// events are printed and requests fail.
	Deliver bool
	Stdout  io.Writer // for printed events and stdout sinks
	Drain   time.Duration
}

// Replayed is the result of a replay.
type Replayed struct {
	Header  recording.Header
	Deltas  int           // changes of sources, including first lists
	Took    time.Duration // time until the last change was played
	CutOff  error         // the recording has no end line; nil: it has
	Pending error         // deltas still pending at the end; nil: none
	// GivenUp is the number of deltas that were given up. The log has some of the reasons.
	GivenUp int64
}

// Replay runs a recording through the routes of the configuration: each source gets the recorded
// changes of the source of the same name that match its namespaces and selectors. There is no state
// folder. It returns an error if it did not reach the end.
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

// player plays a recording into the sources of a configuration.
type player struct {
	in      *recording.Reader
	e       *engine.Engine
	clock   timer.Clock
	speed   float64
	letters *countedLetters
	watches map[string][]*informer.Watch    // by the recorded source that they get
	feeds   map[string][]*informer.Injector // by recorded source, from its first line on
	deltas  int
	// by route with look-ups; closed when their sources have synced
	ready   map[string]chan struct{}
	rescans injectedRescans
	due     chan string // routes to rescan
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
	p.due = make(chan string, len(e.Set.Plan.Routes)) // each route is in it once at most
	p.rescans = injectedRescans{e: e, clock: p.clock, due: func(route string) {
		select {
		case p.due <- route:
		default:
		}
	}}
	p.letters = &countedLetters{log: &deliver.LogDeadLetters{Log: e.Log}}
	routes := e.Set.Routes()
	if err := p.attach(ctx); err != nil {
		return err
	}
	if err := e.OpenPipeline(pipeline.Config{Routes: routes, DeadLetters: p.letters}); err != nil {
		return err
	}
	return e.OpenSaved(ctx, nil)
}

// rescanDue rescans all objects for routes that start or whose reevaluation is due.
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

// awaitable makes the channels that report when the look-ups of routes are ready.
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

// awaitReady waits for the routes whose look-ups use synced sources. Other routes get no deltas, as
// in a running router.
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

// attach assigns a recorded source to each watch: the first recorded one of the sources that share
// it. A watch without a recorded source has no objects.
func (p *player) attach(ctx context.Context) error {
	h := p.in.Header()
	p.watches, p.feeds = make(map[string][]*informer.Watch), make(map[string][]*informer.Injector)
	for _, wanted := range p.e.Set.WantedWatches() {
		if len(wanted.Sources) == 0 {
			continue // it finds namespaces, and a recording has the objects of the found ones only
		}
		w := wanted.Add(p.e.Factory)
		i := slices.IndexFunc(wanted.Sources, func(s informer.Source) bool { _, ok := h.Sources[s.Name]; return ok })
		if i >= 0 {
			name := wanted.Sources[i].Name
			p.watches[name] = append(p.watches[name], w)
			continue
		}
		p.e.Log.Warn("the source has no objects: it is not in the recording", "source", wanted.Sources[0].Name)
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
			p.e.Log.Warn("a recorded source is ignored: the configuration does not have it", "source", name)
		} else if c.Resource != source.Resource {
			return fmt.Errorf("sources.%s: its resource is %s, but that of the recorded source is %s", name, c.Resource, source.Resource)
		}
	}
	if name := p.e.Set.Plan.Config.Cluster.Name; name != h.Cluster {
		p.e.Log.Warn("the recording is of another cluster: the ids of events differ from those there", "cluster", name, "recorded", h.Cluster)
	}
	return nil
}

// play plays all lines at their times. It returns nil at the end.
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

// await waits for the time of a line.
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

// tell plays a line into the watches of its source.
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

// countedLetters counts the deltas that are given up.
type countedLetters struct {
	log *deliver.LogDeadLetters
	n   atomic.Int64
}

// Add implements deliver.DeadLetterer.
func (c *countedLetters) Add(ctx context.Context, letters []checkpoint.Letter) error {
	c.n.Add(int64(len(letters)))
	return c.log.Add(ctx, letters)
}

// Remove implements deliver.DeadLetterer. There are no retries.
func (c *countedLetters) Remove(context.Context, []uint64) (int, error) { return 0, nil }

// printing returns printing sinks instead of the configured ones.
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
