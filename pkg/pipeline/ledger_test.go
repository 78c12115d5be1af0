package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// flakyDisk is a disk that cannot be read at times.
type flakyDisk struct {
	disk

	mu      sync.Mutex
	luck    *chance // nil: always
	failing bool
	full    bool                         // nothing can be renamed
	before  func()                       // called before something is renamed
	rules   map[string]map[string][]byte // by route, and by kind and key
	soon    int                          // how often a cut was asked for
}

// Rename implements pipeline.Store.
func (k *flakyDisk) Rename(ctx context.Context, was, name string, upTo uint64) error {
	k.before()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.full {
		return errDown
	}
	if k.rules[name] == nil && k.rules != nil {
		k.rules[name] = map[string][]byte{}
	}
	for key, value := range k.rules[was] {
		if _, own := k.rules[name][key]; !own {
			k.rules[name][key] = value
		}
	}
	delete(k.rules, was)
	return k.disk.Rename(ctx, was, name, upTo)
}

// Soon implements pipeline.Store.
func (k *flakyDisk) Soon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.soon++
}

// cut writes what changed in a pipeline.
func (k *flakyDisk) cut(b *bench) {
	k.flush(b)
	b.Saved(k.weigh)
}

func (k *flakyDisk) flush(b *bench) {
	cuts := b.Dirty()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write(b.t, cuts)
}

// write writes what was handed over.
func (k *flakyDisk) write(t testing.TB, cuts []checkpoint.RouteCut) {
	t.Helper()
	k.disk.write(t, cuts)
	for _, cut := range cuts {
		if k.rules == nil {
			k.rules = map[string]map[string][]byte{}
		}
		if k.rules[cut.Name] == nil || cut.Reset {
			k.rules[cut.Name] = map[string][]byte{}
		}
		for _, r := range cut.Rules {
			if delete(k.rules[cut.Name], string(r.Kind)+string(r.Key)); r.Value != nil {
				k.rules[cut.Name][string(r.Kind)+string(r.Key)] = r.Value
			}
		}
	}
}

// known lists what the rules of a route know.
func (k *flakyDisk) known(route string) (records []checkpoint.RuleRecord) {
	for name, value := range k.rules[route] {
		records = append(records, checkpoint.RuleRecord{Kind: name[0], Key: []byte(name[1:]), Value: value})
	}
	return records
}

// restore gives a route of a pipeline that has not started what is on disk.
func (k *flakyDisk) restore(b *bench, route string) {
	b.t.Helper()
	if err := errors.Join(b.RestoreRules(route, k.known(route)), b.Restore(route, k.owed(route), k.debt(route))); err != nil {
		b.t.Fatal(err)
	}
}

// ReadRoute implements pipeline.Store.
func (k *flakyDisk) ReadRoute(route string, part checkpoint.Part) ([]checkpoint.Owed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failing || k.luck != nil && k.luck.in(4) {
		return nil, errDown
	}
	return k.disk.ReadRoute(route, part)
}

// entryBytes is what a delta of these tests takes, about: in memory and, as far as the route is told, on disk.
const entryBytes = 500

func (k *flakyDisk) weigh(route string) (bytes, all int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, owed := range k.disk {
		all += int64(len(owed)) * entryBytes
	}
	return int64(len(k.disk[route])) * entryBytes, all
}

// begin starts the router with what is on disk, and puts through again what the disk does not know of, as a watch does.
func (l *ledger) begin() {
	l.life++
	l.ended, l.ready = make(chan struct{}), make(chan struct{})
	for _, r := range l.receivers {
		for _, c := range r.took[r.born:r.acked] {
			r.done[c] = true
		}
		r.born, r.quiet, r.acked = len(r.took), len(r.took), len(r.took)
	}
	routes := l.routes()
	l.b = openAs(l.t, pipeline.Config{Store: l.disk, InFlight: l.p.inFlight}, routes...)
	for _, r := range routes {
		head, err := l.disk.disk.ReadRoute(r.Name, checkpoint.Part{Limit: max(0, r.Capacity)})
		if err == nil {
			err = errors.Join(l.b.RestoreRules(r.Name, l.disk.known(r.Name)), l.b.Restore(r.Name, head, l.disk.debt(r.Name)))
		}
		if err != nil {
			l.failf("%w", err)
		}
	}
	l.b.Start(l.t.Context())
	l.committed = l.written
	for _, d := range l.sent[l.written:] {
		again := *d
		again.Selective = true // it may have been delivered before the crash
		l.admit(&again)
	}
}

// reload exchanges all routes for others of the same names.
func (l *ledger) reload() {
	change, err := l.b.Prepare(l.complete(l.routes()))
	if err != nil {
		l.failf("%w", err)
		return
	}
	change.Swap()
	if l.luck.in(2) {
		l.cut()
	}
	change.Finish(l.t.Context())
}

// complete fills in what openAs does.
func (l *ledger) complete(routes []pipeline.Route) []pipeline.Route {
	for i := range routes {
		routes[i].Sources, routes[i].Ops = []string{"pods"}, event.Ops()
	}
	return routes
}

// admit puts a delta through. The identity of its object is on disk a little later.
func (l *ledger) admit(d *event.Delta) {
	gate := make(chan struct{})
	time.AfterFunc(10*time.Millisecond, func() { close(gate) })
	d.Durable = gate
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
			commit()
		}
		l.committed++
	}()
	for {
		select {
		case <-admitted:
			return
		case <-time.After(time.Second): // a route that has no room makes its source wait; cuts go on
			l.cut()
		}
	}
}

// cut writes the disk.
func (l *ledger) cut() {
	for _, r := range l.receivers {
		r.mu.Lock()
		r.cut = len(r.took)
		r.mu.Unlock()
	}
	l.source.Lock()
	cuts := l.b.Dirty()
	l.written = l.committed
	l.source.Unlock()
	l.disk.mu.Lock()
	l.disk.write(l.t, cuts)
	l.disk.mu.Unlock()
	for _, r := range l.receivers {
		r.acked = r.quiet
	}
	l.b.Saved(l.disk.weigh)
}

// settle waits until nothing is in flight.
func (l *ledger) settle(d time.Duration) {
	pass(d)
	for _, r := range l.receivers {
		r.mu.Lock()
		r.quiet = len(r.took)
		r.mu.Unlock()
	}
}

// end ends this life of the router: abruptly, or in good order.
func (l *ledger) end(crash bool) {
	if crash {
		close(l.ended)
	} else {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		defer cancel()
		_ = l.b.Drain(ctx) // what it could not deliver is owed
	}
	if err := l.b.Close(l.t.Context()); err != nil {
		l.failf("%w", err)
	}
	if !crash {
		l.settle(0)
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
	l.judge()
}

// judge says what is wrong with what was taken in this life.
func (l *ledger) judge() {
	for name, r := range l.receivers {
		last := map[string]int{}
		for _, c := range r.took[r.born:] {
			if r.done[c] {
				l.failf("sink %s: %v was done before the restart", name, c)
			}
			if version := max(c.old, c.new); version <= last[c.name] {
				l.failf("sink %s: %v came after version %d", name, c, last[c.name])
			} else {
				last[c.name] = version
			}
		}
	}
}

// finish delivers the rest and judges the whole.
func (l *ledger) finish() {
	select {
	case <-l.ready:
	default:
		close(l.ready)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Hour)
	defer cancel()
	if err := errors.Join(l.b.Settle(ctx), l.b.Drain(ctx)); err != nil {
		l.failf("%w", err)
		return
	}
	l.cut()
	l.judge()
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
		if strings.HasPrefix(name, "lossy limited") {
			l.withinLimit(name, r)
		}
		if name[:5] != "lossy" && !equalMaps(there, l.cluster.there) {
			l.failf("sink %s ends with %v, want %v", name, there, l.cluster.there)
		}
	}
	for _, route := range l.routes() {
		l.b.balanced(route.Name)
		if n := len(l.disk.disk[route.Name]); n > 0 {
			l.failf("route %s owes nothing, but on disk it owes %d deltas", route.Name, n)
		}
	}
}
