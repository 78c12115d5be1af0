package app

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

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/recording"
)

// RecordOptions says what is recorded.
type RecordOptions struct {
	Config     string // path of the configuration
	Components Components
	Version    string
	Log        *slog.Logger
	Sources    []string // none: all of the configuration
	Drop       []string // paths that are left out of all objects, as `drop` of a source says them
	Out        io.Writer
	Compress   bool
}

// flushInterval is how often a recording is brought to where it can be read.
const flushInterval = time.Second

// Record writes what the sources of a configuration see, until ctx is done. Of Secrets it writes what their data is called, and never
// what it is. It returns how many lines it wrote; the error is config.Problems if the configuration is bad, nil after a stop.
func Record(ctx context.Context, opts RecordOptions) (lines int64, err error) {
	restore := informer.QuietKlog(opts.Log)
	defer restore()
	var client *informer.Client
	p, problems := (*Plans)(nil).make(ctx, opts.Config, opts.Components, func(cluster config.Cluster) (_ *informer.Client, err error) {
		client, err = informer.NewClient(cluster)
		return client, err
	})
	if client != nil {
		defer client.Close()
	}
	if len(problems) > 0 {
		return 0, problems
	}
	if client == nil { // it could not be made; say why
		if client, err = informer.NewClient(p.config.Cluster); err != nil {
			return 0, fmt.Errorf("cluster: %w", err)
		}
	}
	if err := p.restrict(opts.Sources, opts.Drop); err != nil {
		return 0, err
	}
	s := &scribe{began: time.Now()}
	if s.out, err = recording.NewWriter(opts.Out, opts.Compress, p.header(s.began, opts.Version)); err != nil {
		return 0, err
	}
	err = s.record(ctx, p, client, opts.Log)
	return s.lines.Load(), err
}

// restrict leaves only the named sources, if there are names, and has them drop more.
func (p *plan) restrict(names, drop []string) error {
	known := slices.Sorted(maps.Keys(p.sources))
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no source %q%s", name, config.Suggest(name, known))
		}
	}
	for _, name := range known {
		if len(names) > 0 && !slices.Contains(names, name) {
			delete(p.sources, name)
			continue
		}
		source := p.sources[name]
		source.indexes = nil
		source.watches = slices.Clone(source.watches)
		for i := range source.watches {
			all := slices.Clone(drop)
			if was := source.watches[i].Drop; was != "" {
				all = append(all, strings.Split(was, "\n")...)
			}
			var err error
			if source.watches[i].Drop, err = informer.JoinDrop(all); err != nil {
				return err
			}
		}
		p.sources[name] = source
	}
	return nil
}

// header returns the first line of a recording.
func (p *plan) header(began time.Time, version string) recording.Header {
	h := recording.Header{Cluster: p.config.Cluster.Name, Time: began.UTC(), Router: version, Sources: make(map[string]recording.Source)}
	for name, plan := range p.sources {
		c := p.config.Sources[name]
		h.Sources[name] = recording.Source{
			Resource: c.Resource, Namespaces: c.Namespaces, LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector, Cache: c.Cache,
			Drop: strings.FieldsFunc(plan.watches[0].Drop, func(r rune) bool { return r == '\n' }),
		}
	}
	return h
}

// scribe takes the place of the pipeline and writes all deltas down.
type scribe struct {
	out   *recording.Writer
	began time.Time
	lines atomic.Int64
	stop  context.CancelCauseFunc
}

// record runs the sources until ctx is done, or until nothing can be written any more.
func (s *scribe) record(ctx context.Context, p *plan, client *informer.Client, log *slog.Logger) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop = stop
	factory := informer.New(informer.Config{Client: client, Cluster: p.config.Cluster.Name, Metrics: metrics.New(), Log: log, Downstream: s})
	r := &router{parts: parts{plan: p}}
	r.stores = make(map[informer.Spec]*index.Store)
	for _, source := range p.sources {
		for _, spec := range source.watches {
			r.stores[spec] = index.NewStore()
		}
	}
	for _, w := range r.watches() {
		factory.Watch(w.Spec, w.Store, w.Sources...)
	}
	var others sync.WaitGroup
	for name := range p.sources {
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

// errUnwritten: what is written to does not take it.
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
		log.Info("all that is there is recorded, and what changes from now on", "source", source)
	case <-ctx.Done():
	}
}

// Admit implements informer.Downstream. Nobody wants the delta.
func (s *scribe) Admit(_ context.Context, d *event.Delta) (commit func(), err error) {
	o := d.Object()
	l := recording.Line{Op: recording.Op(d.Op.String()), Source: d.Source, Stale: d.Stale, Kind: o.Resource().Kind}
	switch {
	case d.Initial && d.Op == event.Added:
		l.Op = recording.Existing
	case d.Op == event.Sync:
		l.Round = d.Seen
	}
	l.Object = string(redacted(o, evaluatedAs).Raw())
	s.write(l)
	return nil, nil
}
