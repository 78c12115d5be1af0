package pipeline_test

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/transit"
)

// fakeStore is the sum of all changes, by route and number.
type fakeStore map[string]map[uint64]checkpoint.Pending

func (k fakeStore) write(t testing.TB, cuts []checkpoint.RouteCut) {
	t.Helper()
	for _, cut := range cuts {
		route := k[cut.Name]
		if route == nil {
			route = map[uint64]checkpoint.Pending{}
			k[cut.Name] = route
		}
		for _, number := range cut.Removed {
			if _, known := route[number]; !known {
				t.Errorf("route %s: delta %d is removed but was never handed over", cut.Name, number)
			}
			delete(route, number)
		}
		for _, o := range cut.Put {
			if slices.Contains(cut.Removed, o.ID) {
				t.Errorf("route %s: delta %d is removed and handed over", cut.Name, o.ID)
			}
			route[o.ID] = o
		}
	}
}

// pending lists the backlog of a route, in no order.
func (k fakeStore) pending(route string) []checkpoint.Pending {
	return slices.Collect(maps.Values(k[route]))
}

// backlog is the size of the backlog of a route: one byte for each delta.
func (k fakeStore) backlog(route string) checkpoint.Backlog {
	d := checkpoint.Backlog{N: len(k[route]), Bytes: int64(len(k[route]))}
	for id := range k[route] {
		d.Last = max(d.Last, id)
	}
	return d
}

// ReadRoute implements pipeline.Store.
func (k fakeStore) ReadRoute(route string, part checkpoint.Part) (some []checkpoint.Pending, err error) {
	read := int64(0)
	for _, id := range slices.Sorted(maps.Keys(k[route])) {
		if id <= part.After || part.Before > 0 && id >= part.Before || part.Limit > 0 && len(some) == part.Limit ||
			part.Bytes > 0 && read >= part.Bytes {
			continue
		}
		// Only written deltas are read back.
		o := k[route][id]
		d := *o.Delta
		transit.Of(&d).Durable, o.Delta = nil, &d
		some, read = append(some, o), read+2*entryBytes
	}
	return some, nil
}

// Soon implements pipeline.Store.
func (k fakeStore) Soon() {}

// flakyStore is a disk that cannot be read at times.
type flakyStore struct {
	fakeStore

	mu      sync.Mutex
	faults  *faults // nil: reading always fails
	failing bool
	rules   map[string]map[string][]byte // by route, and by kind and key
	counts  map[string]checkpoint.RuleRecord
	soon    int // the number of requests for a cut
}

// Soon implements pipeline.Store.
func (k *flakyStore) Soon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.soon++
}

// cut writes the changes of a pipeline.
func (k *flakyStore) cut(b *harness) {
	k.flush(b)
	b.Saved(k.weigh)
}

func (k *flakyStore) flush(b *harness) {
	cuts := b.Dirty()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write(b.t, cuts)
}

// write writes changes.
func (k *flakyStore) write(t testing.TB, cuts []checkpoint.RouteCut) {
	t.Helper()
	k.fakeStore.write(t, cuts)
	for _, cut := range cuts {
		if k.rules == nil {
			k.rules, k.counts = map[string]map[string][]byte{}, map[string]checkpoint.RuleRecord{}
		}
		if k.rules[cut.Name] == nil {
			k.rules[cut.Name] = map[string][]byte{}
		}
		for _, r := range cut.Rules {
			if r.Kind == checkpoint.KindCounts {
				k.counts[cut.Name] = r
				continue
			}
			if delete(k.rules[cut.Name], string(r.Kind)+string(r.Key)); r.Value != nil {
				k.rules[cut.Name][string(r.Kind)+string(r.Key)] = r.Value
			}
		}
	}
}

// known lists the records of the rules of a route.
func (k *flakyStore) known(route string) (records []checkpoint.RuleRecord) {
	for name, value := range k.rules[route] {
		records = append(records, checkpoint.RuleRecord{Kind: name[0], Key: []byte(name[1:]), Value: value})
	}
	return records
}

// restore restores a route of a pipeline that has not started from the disk.
func (k *flakyStore) restore(b *harness, route string) {
	b.t.Helper()
	records := k.known(route)
	if r, ok := k.counts[route]; ok {
		records = append(records, r)
	}
	if err := errors.Join(b.RestoreRules(route, records), b.Restore(route, k.pending(route), k.backlog(route))); err != nil {
		b.t.Fatal(err)
	}
}

// ReadRoute implements pipeline.Store.
func (k *flakyStore) ReadRoute(route string, part checkpoint.Part) ([]checkpoint.Pending, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failing || k.faults != nil && k.faults.oneIn(4) {
		return nil, errDown
	}
	return k.fakeStore.ReadRoute(route, part)
}

// entryBytes is the approximate size of a delta in these tests, in memory and on disk.
const entryBytes = 500

func (k *flakyStore) weigh(route string) (bytes, owned, all int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, pending := range k.fakeStore {
		all += int64(len(pending)) * entryBytes
		if owner := checkpoint.Owner(name); owner != "" && owner == checkpoint.Owner(route) {
			owned += int64(len(pending)) * entryBytes
		}
	}
	return int64(len(k.fakeStore[route])) * entryBytes, owned, all
}
