package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
	"github.com/deltarouter/deltarouter/pkg/recording"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// ReplayOptions says how a recording is played.
type ReplayOptions struct {
	Recording io.Reader
	// Speed is how many times as fast as recorded: time itself passes so for routes and handlers, beginning with the time of the recording.
	// 0: as fast as the routes take it, at the present time.
	Speed   float64
	Deliver bool      // to the sinks of the configuration; else all events are printed
	Stdout  io.Writer // where they are printed, and where stdout sinks write
	Drain   time.Duration
}

// Replayed says how it went.
type Replayed struct {
	Header recording.Header
	Deltas int           // that sources were told, those of the first lists included
	Took   time.Duration // until all was told
	CutOff error         // the recording has no end; nil: it has
	Owed   error         // what was not delivered in the end; nil: nothing
	// GivenUp is how many deltas were, be it that no sink took them or that something about them failed. The log has some of the reasons.
	GivenUp int64
}

// Replay lets the routes of the configuration work on a recording: what the sources of it saw, the sources of the same names see, as far
// as their namespaces and selectors let it. There is no state folder. The error says why it did not come to its end.
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
		return done, errors.Join(err, p.r.close(ctx))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	p.r.pipeline.Start(running)
	p.startWaits(running)
	p.r.requeues.start(running)
	began := time.Now()
	err = p.play(ctx)
	done.Took, done.Deltas = time.Since(began), p.deltas
	if errors.Is(err, recording.ErrCutOff) {
		done.CutOff, err = err, nil
	}
	p.awaitReady()
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), opts.Drain)
	defer cancel()
	done.Owed = p.r.pipeline.Drain(draining)
	stop()
	p.r.reloads.wait.Wait()
	p.r.requeues.ended()
	done.GivenUp = p.letters.n.Load()
	return done, errors.Join(err, p.r.close(ctx))
}

// player tells the sources of a configuration what a recording says.
type player struct {
	in      *recording.Reader
	r       *router
	clock   timer.Clock
	speed   float64
	letters *countedLetters
	watches map[string][]*informer.Watch // by the source whose lines they are told
	feeds   map[string][]*informer.Feed  // likewise; of a source that has had a line
	deltas  int
	ready   map[string]chan struct{} // by route that looks things up; closed once that is there
	looks   fedLooks
	checks  chan string // routes that are to look again
}

func (p *player) open(ctx context.Context, o *Offline, opts ReplayOptions) error {
	all := o.opts
	all.Surroundings.Clock, all.Stdout = p.clock, opts.Stdout
	p.r = &router{parts: parts{plan: o.plan}, opts: all, log: all.Log, metrics: metrics.New()}
	r := p.r
	if !opts.Deliver {
		var err error
		if r.opts.Components.Sinks, err = printing(all.Components.Sinks); err != nil {
			return err
		}
	}
	r.memories = newMemories(nil, p.clock)
	r.onClose("components", func(ctx context.Context) error { return r.closeUnused(ctx, &parts{}) })
	if err := r.openComponents(ctx, &parts{}); err != nil {
		return err
	}
	r.factory = informer.New(informer.Config{
		Cluster: r.plan.config.Cluster.Name, Metrics: r.metrics, Log: r.log, Downstream: downstream{r}, Clock: p.clock,
	})
	r.openStores(&parts{})
	p.checks = make(chan string, len(r.plan.routes)) // each is due once at a time
	p.looks = fedLooks{r: r, clock: p.clock, due: func(route string) {
		select {
		case p.checks <- route:
		default:
		}
	}}
	p.letters = &countedLetters{log: &pipeline.LogDeadLetters{Log: r.log}}
	routes := r.routes()
	if err := p.attach(ctx); err != nil {
		return err
	}
	r.fillCaches()
	r.requeues = newRequeuer(r)
	r.requeues.use(r.requeue) //nolint:contextcheck // they run as long as start says
	var err error
	r.pipeline, err = pipeline.New(pipeline.Config{Routes: routes, Metrics: r.metrics, Log: r.log, DeadLetters: p.letters, Clock: p.clock})
	return err
}

// look has routes look at all objects, be it for the first time or because their check is due.
func (p *player) look(ctx context.Context) error {
	ready := func(route string) {
		if ready := p.ready[route]; ready != nil {
			<-ready
		}
	}
	if err := p.looks.begin(ctx, ready); err != nil {
		return err
	}
	for {
		select {
		case route := <-p.checks:
			if err := p.looks.look(ctx, route); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// startWaits lets routes wait for what they look up.
func (p *player) startWaits(ctx context.Context) {
	p.ready = make(map[string]chan struct{})
	waits := make(map[string]func(context.Context))
	for name, wait := range p.r.waits {
		ready := make(chan struct{})
		p.ready[name] = ready
		waits[name] = func(ctx context.Context) {
			wait(ctx)
			close(ready)
		}
	}
	p.r.startWaits(ctx, waits, nil)
}

// awaitReady waits for the routes that look things up in sources whose objects are all there. Others get nothing, as in a live router.
func (p *player) awaitReady() {
	for i := range p.r.plan.routes {
		route := &p.r.plan.routes[i]
		unsynced := func(source string) bool {
			status, _ := p.r.factory.Status(source)
			return !status.Synced
		}
		if ready := p.ready[route.Name]; ready != nil && !slices.ContainsFunc(route.lookups(), unsynced) {
			<-ready
		}
	}
}

// attach finds for each watch the source whose lines it is told: of those that share it the first that was recorded. A watch of which
// nothing was recorded has nothing.
func (p *player) attach(ctx context.Context) error {
	h := p.in.Header()
	p.watches, p.feeds = make(map[string][]*informer.Watch), make(map[string][]*informer.Feed)
	for _, wanted := range p.r.watches() {
		w := p.r.factory.Watch(wanted.Spec, wanted.Store, wanted.Sources...)
		i := slices.IndexFunc(wanted.Sources, func(s informer.Source) bool { _, ok := h.Sources[s.Name]; return ok })
		if i >= 0 {
			name := wanted.Sources[i].Name
			p.watches[name] = append(p.watches[name], w)
			continue
		}
		p.r.log.Warn("a source is not in the recording, and has no objects", "source", wanted.Sources[0].Name)
		feed, err := w.Feed("")
		if err == nil {
			err = feed.Listed(ctx)
		}
		if err != nil {
			return fmt.Errorf("sources.%s: %w", wanted.Sources[0].Name, err)
		}
	}
	for name, source := range h.Sources {
		if c := p.r.plan.config.Sources[name]; c == nil {
			p.r.log.Warn("the configuration has no such source; what was recorded of it is left out", "source", name)
		} else if c.Resource != source.Resource {
			return fmt.Errorf("sources.%s: it is of %s, and what was recorded under this name is of %s", name, c.Resource, source.Resource)
		}
	}
	if name := p.r.plan.config.Cluster.Name; name != h.Cluster {
		p.r.log.Warn("the recording is of another cluster, so events have other ids than they had there", "cluster", name, "recorded", h.Cluster)
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
		if l.Op == recording.Synced || len(p.checks) > 0 {
			if err := p.look(ctx); err != nil {
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
		case route := <-p.checks:
			if err := p.looks.look(ctx, route); err != nil {
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
			feed, err := w.Feed(l.Kind)
			if err != nil {
				return fmt.Errorf("sources.%s: %w", l.Source, err)
			}
			p.feeds[l.Source] = append(p.feeds[l.Source], feed)
			p.looks.feeds = append(p.looks.feeds, feed)
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

func tell(ctx context.Context, f *informer.Feed, l *recording.Line) error {
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

// printing makes sinks of the same kinds, that are checked alike, and print.
func printing(actual []plugins.Factory[plugins.Sink]) ([]plugins.Factory[plugins.Sink], error) {
	printer := factoryOf(actual, "stdout")
	if printer == nil {
		return nil, errors.New("there is no stdout sink to print events with")
	}
	defaults, problems := config.ParseNode("", []byte("{}"))
	if len(problems) > 0 {
		return nil, problems
	}
	sinks := slices.Clone(actual)
	for i := range sinks {
		sinks[i].Files = nil
		sinks[i].Open = func(ctx context.Context, _ config.Node, env plugins.Env) (plugins.Sink, error) {
			return printer.Open(ctx, defaults, env)
		}
	}
	return sinks, nil
}
