package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// begin starts the router from the disk, and admits again the deltas that are not on disk, as a
// watch does.
func (l *crashModel) begin() {
	l.life++
	l.ended, l.ready = make(chan struct{}), make(chan struct{})
	for _, r := range l.receivers {
		for _, c := range r.took[r.born:r.acked] {
			r.done[c] = true
		}
		r.born, r.quiet, r.acked = len(r.took), len(r.took), len(r.took)
	}
	routes := l.routes()
	l.b = openAs(l.t, pipeline.Config{Store: l.store, InFlight: l.p.inFlight}, routes...)
	for _, r := range routes {
		head, err := l.store.fakeStore.ReadRoute(r.Name, checkpoint.Part{Limit: max(0, r.Capacity)})
		if err == nil {
			err = errors.Join(l.b.RestoreRules(r.Name, l.store.known(r.Name)), l.b.Restore(r.Name, head, l.store.backlog(r.Name)))
		}
		if err != nil {
			l.failf("%w", err)
		}
	}
	l.b.Start(l.t.Context())
	l.committed = l.written
	for _, d := range l.sent[l.written:] {
		again := *d
		transit.Of(&again).Selective = true // it may have been delivered before the crash
		l.admit(&again)
	}
}

// reload exchanges all routes for others of the same names.
func (l *crashModel) reload() {
	change, err := l.b.Prepare(l.complete(l.routes()))
	if err != nil {
		l.failf("%w", err)
		return
	}
	change.Swap()
	if l.faults.oneIn(2) {
		l.cut()
	}
	change.Finish(l.t.Context())
}

// complete sets the defaults of openAs.
func (l *crashModel) complete(routes []spec.Settings) []spec.Settings {
	for i := range routes {
		routes[i].Sources, routes[i].Ops = []string{"pods"}, event.Ops()
	}
	return routes
}

// admit admits a delta. The identity of its object is on disk a little later.
func (l *crashModel) admit(d *event.Delta) {
	gate := make(chan struct{})
	time.AfterFunc(10*time.Millisecond, func() { close(gate) })
	transit.Of(d).Durable = gate
	admitted := make(chan struct{})
	go func() {
		defer close(admitted)
		commit, err := l.b.Admit(l.t.Context(), d)
		if err != nil {
			l.t.Error(err)
		}
		l.source.Lock()
		defer l.source.Unlock()
		if commit != nil {
			commit.Commit()
		}
		l.committed++
	}()
	for {
		select {
		case <-admitted:
			return
		case <-time.After(time.Second): // a full route blocks its source; cuts continue
			l.cut()
		}
	}
}

// cut writes the disk.
func (l *crashModel) cut() {
	for _, r := range l.receivers {
		r.mu.Lock()
		r.cut = len(r.took)
		r.mu.Unlock()
	}
	l.source.Lock()
	cuts := l.b.Dirty()
	l.written = l.committed
	l.source.Unlock()
	l.store.mu.Lock()
	l.store.write(l.t, cuts)
	l.store.mu.Unlock()
	for _, r := range l.receivers {
		r.acked = r.quiet
	}
	l.b.Saved(l.store.weigh)
}

// waitIdle waits until nothing is in flight.
func (l *crashModel) waitIdle(d time.Duration) {
	pass(d)
	for _, r := range l.receivers {
		r.mu.Lock()
		r.quiet = len(r.took)
		r.mu.Unlock()
	}
}

// end ends this life of the router: abruptly, or in order.
func (l *crashModel) end(crash bool) {
	if crash {
		close(l.ended)
	} else {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		defer cancel()
		_ = l.b.Drain(ctx) // the rest stays pending
	}
	if err := l.b.Close(l.t.Context()); err != nil {
		l.failf("%w", err)
	}
	if !crash {
		l.waitIdle(0)
		l.cut()
	}
	for _, r := range l.receivers {
		for i := r.cut; i < len(r.took); i++ {
			if r.lost == nil {
				r.lost = map[int]bool{}
			}
			r.lost[i] = true
		}
		r.cut = len(r.took)
	}
	l.check()
}

// check checks the deltas that were taken in this life.
func (l *crashModel) check() {
	for name, r := range l.receivers {
		last := map[string]int{}
		for _, c := range r.took[r.born:] {
			if r.done[c] && c.op != "sync" {
				l.failf("sink %s: %v was done before the restart", name, c)
			}
			if version := max(c.old, c.new); version < last[c.name] || version == last[c.name] && c.op != "sync" {
				l.failf("sink %s: %v came after version %d", name, c, last[c.name])
			} else {
				last[c.name] = version
			}
		}
	}
}

// finish delivers the rest and checks the whole run.
func (l *crashModel) finish() {
	select {
	case <-l.ready:
	default:
		close(l.ready)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Hour)
	defer cancel()
	if err := errors.Join(l.b.WaitDelivered(ctx), l.b.Drain(ctx)); err != nil {
		l.failf("%w", err)
		return
	}
	l.cut()
	l.check()
	if n := l.b.value("route_deltas_total", metrics.DeadLettered); n > 0 {
		l.failf("%v dead letters: %v", n, l.b.letters.got())
	}
	want := map[change]bool{}
	for _, d := range l.sent {
		if d.Key().Name != "d" {
			want[changeOf(l.t, event.New(d, "", 0, event.Payload(d)))] = true
		}
	}
	delete(l.cluster.there, "d")
	for name, r := range l.receivers {
		got, there := map[change]bool{}, map[string]change{}
		for _, c := range r.took {
			got[c] = true
			if there[c.name] = (change{name: c.name, uid: c.uid, new: c.new}); c.new == 0 {
				delete(there, c.name)
			}
		}
		if name[:5] == "every" && !equalMaps(byChange(got), byChange(want)) {
			l.failf("sink %s took %v, want %v", name, got, want)
		}
		coalesces := name[:3] == "net" || strings.HasPrefix(name, "lossy quiet")
		for c := range got {
			if !want[c] && !coalesces {
				l.failf("sink %s took %v, which never happened", name, c)
			}
		}
		if _, err := replay(r.took); err != nil && name[:3] == "net" && !l.p.crashes {
			l.failf("sink %s: %w", name, err)
		}
		if strings.HasPrefix(name, "lossy limited") {
			l.withinLimit(name, r)
		}
		if name[:5] != "lossy" && !equalMaps(there, l.cluster.there) {
			l.failf("sink %s ends with %v, want %v", name, there, l.cluster.there)
		}
	}
	for _, route := range l.routes() {
		l.b.balanced(route.Name)
		if n := len(l.store.fakeStore[route.Name]); n > 0 {
			l.failf("route %s has nothing pending, but %d deltas on disk", route.Name, n)
		}
	}
}
