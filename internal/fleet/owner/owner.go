package owner

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/complaints"
)

// Config is the configuration of an Owner.
type Config struct {
	Own, Members jetstream.KeyValue
	// Worker identifies the process: no other process has ever had the name.
	Worker  string
	Version string
	// Hash is the hash of the whole configuration, for people.
	Hash string
	// Routes are the routes that the worker can handle: the hash of the configuration, by token.
	Routes map[string]string
	TTL    time.Duration // of the leases
	Hold   Hold
	Empty  Empty
	Log    *slog.Logger
	// Complaints get what many partitions may have for one reason; nil: New makes them from Log.
	Complaints *complaints.Log
}

// Owner takes the partitions that its worker should own, and gives those that another one should.
type Owner struct {
	cfg     Config
	store   Store
	members *members
	changed chan struct{} // signalled when the partitions should be assigned again
	begun   time.Time

	mu      sync.Mutex
	records map[string]Record
	keepers map[Partition]*keeper
	opened  map[string]uint64 // by route: generations before it are known to be empty
	foreign map[string]string // routes that are not handled because of their configuration: the hash of the leader
}

// New returns an Owner that has not started.
func New(cfg Config) *Owner {
	if cfg.Complaints == nil {
		cfg.Complaints = complaints.New(cfg.Log)
	}
	o := &Owner{
		cfg: cfg, store: KV(cfg.Own), changed: make(chan struct{}, 1), begun: time.Now(), records: map[string]Record{},
		keepers: map[Partition]*keeper{}, opened: map[string]uint64{}, foreign: map[string]string{},
	}
	o.members = &members{bucket: cfg.Members, ttl: cfg.TTL, log: cfg.Log, kick: o.kick, all: map[string]seen{}}
	return o
}

func (o *Owner) kick() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// Run owns partitions until give is closed and all of them were handed over, or until ctx ends,
// which hands nothing over.
func (o *Owner) Run(ctx context.Context, give <-chan struct{}) {
	watching, stop := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stop()
	watches.Go(func() { o.members.watch(watching) })
	watches.Go(func() { o.watchRoutes(watching) })
	watches.Go(func() { (&cleaner{o, map[string]uint64{}, map[string]sighting{}}).run(watching) })
	tick := time.NewTicker(o.cfg.TTL / 3)
	defer tick.Stop()
	o.show(ctx)
	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case <-give:
			running = false
		case <-tick.C:
			o.show(ctx)
			o.assign(ctx)
		case <-o.changed:
			o.assign(ctx)
		}
	}
	o.leave(ctx)
}

// leave hands all partitions over. The worker is no member any more from the beginning, so that
// others take the partitions that it gives.
func (o *Owner) leave(ctx context.Context) {
	removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.TTL/2)
	if ctx.Err() == nil {
		_ = o.cfg.Members.Purge(removing, o.cfg.Worker) // otherwise it expires
	}
	cancel()
	o.mu.Lock()
	all := slices.Collect(maps.Values(o.keepers))
	for _, k := range all {
		k.dismiss()
	}
	o.mu.Unlock()
	for _, k := range all {
		<-k.ended
	}
}

// dismiss tells the keeper to give the partition.
func (k *keeper) dismiss() {
	if !k.given {
		k.given = true
		close(k.give)
	}
}

// show writes the entry of the worker to the bucket of members.
func (o *Owner) show(ctx context.Context) {
	m := Member{Role: RoleWorker, Version: o.cfg.Version, Config: o.cfg.Hash, Routes: o.cfg.Routes, Partitions: o.Partitions(), Since: o.begun}
	data, err := json.Marshal(m)
	if err != nil {
		o.cfg.Log.Error("the entry of this worker cannot be encoded", slog.Any("err", err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.TTL/4)
	defer cancel()
	if _, err := o.cfg.Members.Put(ctx, o.cfg.Worker, data); err != nil && ctx.Err() == nil {
		o.cfg.Log.Debug("the entry of this worker cannot be written", slog.Any("err", err))
	}
}

// Partitions returns the partitions that the worker owns, in order.
func (o *Owner) Partitions() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for p, k := range o.keepers {
		if l := k.holding.Load(); l != nil && l.Valid() {
			all = append(all, p.String())
		}
	}
	slices.Sort(all)
	return all
}

// Record returns the record that the leader has announced for a route.
func (o *Owner) Record(route string) (r Record, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok = o.records[route]
	return r, ok
}

// Foreign returns the routes of the worker that it does not handle because the leader has another
// configuration of them: the hash of the leader, by token.
func (o *Owner) Foreign() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.foreign)
}

// watchRoutes follows the records of the routes.
func (o *Owner) watchRoutes(ctx context.Context) {
	follow(ctx, o.cfg.Own, "*", o.cfg.TTL, o.cfg.Log, func(e jetstream.KeyValueEntry) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if e.Operation() != jetstream.KeyValuePut {
			delete(o.records, e.Key())
			o.kick()
			return
		}
		r, err := decodeRecord(e.Value())
		if err != nil || len(r.Generations) == 0 {
			o.cfg.Log.Warn("the record of a route cannot be read: its partitions stay as they are",
				slog.String("bucket", o.cfg.Own.Bucket()), slog.String("key", e.Key()), slog.Any("err", err))
			return
		}
		o.records[e.Key()] = r
		o.kick()
	})
}
