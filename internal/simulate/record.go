package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// RecordOptions are the options of a recording.
type RecordOptions struct {
	Config     string // path of the configuration
	Components compile.Components
	Version    string
	Log        *slog.Logger
	Sources    []string // empty: all of the configuration
	// paths to remove from all objects, as in `excludeFields` of a source
	Drop     []string
	Out      io.Writer
	Compress bool
}

// flushInterval is the interval between flushes of a recording.
const flushInterval = time.Second

// Record writes the changes of a configuration's sources until ctx is done. Of Secrets it writes
// the keys of their data but never the values. It returns the number of lines. The error is
// config.Problems for an invalid configuration, and nil after a stop.
func Record(ctx context.Context, opts RecordOptions) (lines int64, err error) {
	restore := informer.QuietKlog(opts.Log)
	defer restore()
	var client *informer.Client
	p, problems := (*compile.Plans)(nil).Make(ctx, compile.Input{Path: opts.Config, Tolerant: true}, opts.Components, func(cluster config.Cluster) (_ *informer.Client, err error) {
		client, err = informer.NewClient(cluster, opts.Components.Policy)
		return client, err
	})
	if client != nil {
		defer client.Close()
	}
	if len(problems) > 0 {
		return 0, problems
	}
	if client == nil { // it could not be made; say why
		if client, err = informer.NewClient(p.Config.Cluster, p.Config.Policy); err != nil {
			return 0, fmt.Errorf("cluster: %w", err)
		}
	}
	if err := restrict(p, opts.Sources, opts.Drop); err != nil {
		return 0, err
	}
	s := &scribe{began: time.Now()}
	if s.out, err = recording.NewWriter(opts.Out, opts.Compress, header(p, s.began, opts.Version)); err != nil {
		return 0, err
	}
	err = s.record(ctx, p, client, opts.Log)
	return s.lines.Load(), err
}

// restrict leaves only the named sources, if there are names, and has them drop more.
func restrict(p *compile.Plan, names, drop []string) error {
	known := slices.Sorted(maps.Keys(p.Sources))
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no source %q%s", name, config.Suggest(name, known))
		}
	}
	for _, name := range known {
		if len(names) > 0 && !slices.Contains(names, name) {
			delete(p.Sources, name)
			continue
		}
		source := p.Sources[name]
		source.Indexes = nil
		source.Specs = slices.Clone(source.Specs)
		for i := range source.Specs {
			all := slices.Clone(drop)
			if was := source.Specs[i].Drop; was != "" {
				all = append(all, strings.Split(was, "\n")...)
			}
			var err error
			if source.Specs[i].Drop, err = informer.JoinDrop(all); err != nil {
				return err
			}
		}
		p.Sources[name] = source
	}
	return nil
}

// header returns the first line of a recording.
func header(p *compile.Plan, began time.Time, version string) recording.Header {
	h := recording.Header{Cluster: p.Config.Cluster.Name, Time: began.UTC(), Router: version, Sources: make(map[string]recording.Source)}
	for name, plan := range p.Sources {
		c := p.Config.Sources[name]
		h.Sources[name] = recording.Source{
			Resource: c.Resource, Namespaces: c.Namespaces, NamespaceSelector: c.NamespaceSelector,
			LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector, Cache: c.Cache,
			Drop: strings.FieldsFunc(plan.Specs[0].Drop, func(r rune) bool { return r == '\n' }),
		}
	}
	return h
}

// scribe replaces the pipeline and records all deltas.
type scribe struct {
	out   *recording.Writer
	began time.Time
	lines atomic.Int64
	stop  context.CancelCauseFunc
}

// record runs the sources until ctx is done or a write fails.
func (s *scribe) record(ctx context.Context, p *compile.Plan, client *informer.Client, log *slog.Logger) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop = stop
	factory := informer.New(informer.Config{Client: client, Cluster: p.Config.Cluster.Name, Metrics: metrics.New(), Log: log, Downstream: s})
	all := engine.NewSet(&engine.Env{Log: log}, p)
	all.OpenStores(&engine.Set{})
	for _, w := range all.WantedWatches() {
		factory.Watch(w.Spec, w.Store, w.Sources...)
	}
	var others sync.WaitGroup
	for name := range p.Sources {
		others.Go(func() { s.awaitSynced(running, factory, name, log) })
	}
	others.Go(func() { s.flush(running) })
	factory.Run(running)
	others.Wait()
	err := context.Cause(running)
	if ctx.Err() != nil && !errors.Is(err, errUnwritten) {
		s.write(recording.Line{Op: recording.End})
		err = nil
	}
	return errors.Join(err, s.out.Close())
}

// errUnwritten reports a failed write of the recording.
var errUnwritten = errors.New("the recording cannot be written")

func (s *scribe) write(l recording.Line) {
	l.At = time.Since(s.began)
	if err := s.out.Write(l); err != nil {
		s.stop(fmt.Errorf("%w: %w", errUnwritten, err))
		return
	}
	s.lines.Add(1)
}

func (s *scribe) flush(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := s.out.Flush(); err != nil {
				s.stop(fmt.Errorf("%w: %w", errUnwritten, err))
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *scribe) awaitSynced(ctx context.Context, factory *informer.Factory, source string, log *slog.Logger) {
	select {
	case <-factory.Synced(source):
		s.write(recording.Line{Op: recording.Synced, Source: source})
		log.Info("existing objects are recorded; recording changes", "source", source)
	case <-ctx.Done():
	}
}

// Admit implements informer.Downstream. It writes the delta instead of enqueuing it.
func (s *scribe) Admit(_ context.Context, d *event.Delta) (event.Admission, error) {
	o := d.Object()
	l := recording.Line{Op: recording.Op(d.Op.String()), Source: d.Source, Stale: d.Stale, Kind: o.Resource().Kind}
	switch {
	case d.Initial && d.Op == event.Added:
		l.Op = recording.Existing
	case d.Op == event.Sync:
		l.Round = d.Seen
	}
	l.Object = string(inspect.Redacted(o, inspect.EvaluatedAs).Raw())
	s.write(l)
	return nil, nil
}

// recorder replaces all sinks and the dead letters, and collects their outcomes. It is safe for
// concurrent use.
type recorder struct {
	clock timer.Clock

	mu       sync.Mutex
	outcomes []Outcome
}

var _ deliver.DeadLetterer = (*recorder)(nil)

// bodyOf returns the function that makes the body that a sink sends; nil: it sends the event.
func (o *Offline) bodyOf(sink string) bodyOf {
	if c := o.plan.Config.Sinks[sink]; c != nil {
		if kind, ok := compile.KindOf(o.env.Components.Sinks, c.Kind).(bodied); ok {
			return kind.Body(c.Config)
		}
	}
	return nil
}

// HasBody reports whether a sink sends the result of an expression instead of the event.
func (o *Offline) HasBody(sink string) bool { return o.bodyOf(sink) != nil }

// onForward records the events that a route passed to another.
func (r *recorder) onForward(route string, sink spec.NamedSink, events []event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		e.Data = slices.Clone(e.Data)
		r.outcomes = append(r.outcomes, Outcome{Time: r.clock.Now(), Route: route, Sink: sink.Name, Given: true, Event: e})
	}
}

func (r *recorder) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.outcomes) == 0
}

func (r *recorder) take() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	came := r.outcomes
	r.outcomes = nil
	return came
}

// Add implements deliver.DeadLetterer.
func (r *recorder) Add(_ context.Context, letters []checkpoint.Letter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range letters {
		r.outcomes = append(r.outcomes, Outcome{Time: r.clock.Now(), Route: letters[i].Route, Sink: letters[i].Sink, Error: letters[i].Error, Object: letters[i].Delta.Key().String()})
	}
	return nil
}

// Remove implements deliver.DeadLetterer. There are no retries.
func (r *recorder) Remove(context.Context, []uint64) (int, error) { return 0, nil }

// recordingSink replaces one sink of the configuration.
type recordingSink struct {
	r    *recorder
	name string
	body bodyOf // nil: the sink sends the event
}

// bodyOf returns the JSON that a sink sends instead of an event. It is safe for concurrent use.
type bodyOf = func(ctx context.Context, e *event.Event) ([]byte, error)

// bodied is a kind of sinks that may send the result of an expression instead of the event.
type bodied interface {
	// Body returns nil if the sink sends the event.
	Body(node config.Node) func(ctx context.Context, e *event.Event) ([]byte, error)
}

// Write implements plugins.Sink. Its errors are those of the body.
func (s recordingSink) Write(ctx context.Context, events []event.Event) (errs []error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for i := range events {
		e := events[i]
		e.Data = slices.Clone(e.Data)
		came := Outcome{Time: s.r.clock.Now(), Route: e.Route, Sink: s.name, Event: e}
		if s.body != nil {
			var err error
			if came.Body, err = s.body(ctx, &e); err != nil {
				errs = append(errs, make([]error, i-len(errs))...)
				errs = append(errs, err)
				continue
			}
		}
		s.r.outcomes = append(s.r.outcomes, came)
	}
	if errs != nil {
		errs = append(errs, make([]error, len(events)-len(errs))...)
	}
	return errs
}

// Close implements plugins.Sink.
func (s recordingSink) Close(context.Context) error { return nil }
