package owner

import (
	"context"
	"log/slog"
	"maps"
	"time"
)

// assign begins to keep the partitions that this worker should own or stands in for, and gives the
// others.
func (o *Owner) assign(ctx context.Context) {
	o.mu.Lock()
	records := maps.Clone(o.records)
	o.mu.Unlock()
	wanted := map[Partition]int{} // the rank of this worker: 0 or 1
	latest := map[Partition]time.Time{}
	for route, own := range o.cfg.Routes {
		r, announced := records[route]
		if !o.handles(route, own, r, announced) {
			continue
		}
		live := o.members.live(route, r.Hash)
		live[o.cfg.Worker] = time.Time{} // its own sign of life may still be on the way
		g := o.open(ctx, route, r)
		for n := range g.Partitions {
			p := Partition{route, g.Number, n}
			order := ranked(names(live), p.String())
			latest[p] = live[order[0]]
			for rank, id := range order[:min(2, len(order))] {
				if id == o.cfg.Worker {
					wanted[p] = rank
				}
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweep(wanted, latest)
	for p, rank := range wanted {
		o.keep(ctx, p, rank)
	}
}

// handles reports whether the worker has the configuration of a route that the leader has.
func (o *Owner) handles(route, own string, r Record, announced bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !announced || r.Hash == "" {
		delete(o.foreign, route)
		return false
	}
	if r.Hash == own {
		if _, was := o.foreign[route]; was {
			o.cfg.Log.Info("the leader has the configuration of this worker: it handles the route", slog.String("route", r.ID))
		}
		delete(o.foreign, route)
		return true
	}
	if o.foreign[route] != r.Hash {
		o.cfg.Log.Warn("this worker does not handle a route: the leader has another configuration of it; give both the same configuration",
			slog.String("route", r.ID), slog.String("hash", own), slog.String("hash_of_leader", r.Hash))
		o.foreign[route] = r.Hash
	}
	return false
}

// open returns the first generation of a route that has messages, the present one at the latest.
// The leader publishes nothing to the ones before the present one, so an empty one stays empty, and
// a message that is acknowledged is gone: when a generation is empty, all its messages are done.
func (o *Owner) open(ctx context.Context, route string, r Record) Generation {
	o.mu.Lock()
	from := o.opened[route]
	o.mu.Unlock()
	for _, g := range r.Generations[:len(r.Generations)-1] {
		if g.Number < from {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, o.cfg.TTL/4)
		empty, err := o.cfg.Empty(asking, route, g.Number)
		cancel()
		if err != nil || !empty {
			return g
		}
		o.mu.Lock()
		o.opened[route] = g.Number + 1
		o.mu.Unlock()
		o.cfg.Log.Info("all messages of a generation are done: its partitions are closed", slog.String("route", r.ID), slog.Uint64("generation", g.Number))
	}
	return r.Now()
}

// sweep gives the partitions that this worker should not have, and forgets the keepers that have
// ended. A partition that is held is given only to a worker that was seen since it was taken.
func (o *Owner) sweep(wanted map[Partition]int, latest map[Partition]time.Time) {
	for p, k := range o.keepers {
		select {
		case <-k.ended:
			delete(o.keepers, p)
			continue
		default:
		}
		rank, want := wanted[p]
		k.first.Store(want && rank == 0)
		k.obsolete.Store(p.Generation < o.opened[p.Route])
		l := k.holding.Load()
		stays := want && (rank == 0 || l == nil)
		// The first one in the order may have ended if it was not seen since.
		waits := l != nil && !k.obsolete.Load() && o.handled(p) && !latest[p].After(l.begun)
		if !stays && !waits {
			k.dismiss()
		}
	}
}

// handled reports whether the partition belongs to a route that the worker handles.
func (o *Owner) handled(p Partition) bool {
	r, announced := o.records[p.Route]
	return announced && r.Hash == o.cfg.Routes[p.Route]
}

// keep begins to keep a partition, unless it is kept already. The lock is held.
func (o *Owner) keep(ctx context.Context, p Partition, rank int) {
	if o.keepers[p] != nil {
		return
	}
	k := &keeper{
		store: o.store, partition: p, worker: o.cfg.Worker, ttl: o.cfg.TTL, route: o.records[p.Route].ID, log: o.cfg.Log, complaints: o.cfg.Complaints, hold: o.cfg.Hold,
		give: make(chan struct{}), ended: make(chan struct{}),
	}
	k.first.Store(rank == 0)
	o.keepers[p] = k
	go func() { k.run(ctx); o.kick() }()
}
