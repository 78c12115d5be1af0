package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/owner"
)

// Shown is the state of a route with workers.
type Shown struct {
	Partitions int
	// Waiting is the number of messages that the workers have not acknowledged; -1: unknown.
	Waiting int64
}

// showTimeout bounds the time for which Show waits for NATS.
const showTimeout = time.Second

// Show returns the routes of the present configuration with workers, by id. The outbox may be nil.
func (o *Outbox) Show(ctx context.Context) map[string]Shown {
	if o == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	all := make(map[string]Shown)
	o.mu.Lock()
	for _, s := range o.current {
		all[s.route.ID] = Shown{Partitions: s.route.Partitions, Waiting: -1}
	}
	o.mu.Unlock()
	for id, shown := range all {
		if n, err := Waiting(ctx, o.config.Conn, id); err == nil {
			shown.Waiting = n
			all[id] = shown
		}
	}
	return all
}

// Waiting returns the number of messages of a route in the stream, see subjects.
func Waiting(ctx context.Context, conn *fleet.Conn, route string) (n int64, err error) {
	counts, err := subjects(ctx, conn, route)
	for _, count := range counts {
		n += count
	}
	return n, err
}

// subjects returns the number of messages of a route by subject. An answer of the server has at
// most 100,000 subjects.
func subjects(ctx context.Context, conn *fleet.Conn, route string) (map[string]int64, error) {
	all := make(map[string]int64)
	for offset := 0; ; {
		request, err := json.Marshal(map[string]any{"subjects_filter": conn.Names.WorkRoute(route), "offset": offset})
		if err != nil {
			return nil, err
		}
		reply, err := conn.NATS.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+conn.Names.Work(), request)
		if err != nil {
			return nil, err
		}
		// Total counts the subjects of all answers, and an answer has a part of them.
		var answer struct {
			Total int `json:"total"` // of the subjects; 0: there are no more
			State struct {
				Subjects map[string]int64 `json:"subjects"`
			} `json:"state"`
			Error *struct {
				Text string `json:"description"`
			} `json:"error"`
		}
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			return nil, err
		}
		if answer.Error != nil {
			return nil, fmt.Errorf("stream %s: %s", conn.Names.Work(), answer.Error.Text)
		}
		maps.Copy(all, answer.State.Subjects)
		if offset += len(answer.State.Subjects); len(answer.State.Subjects) == 0 || offset >= answer.Total {
			return all, nil
		}
	}
}

// generations returns the generations of a route that have messages, with as many partitions as
// these need, in order.
func generations(ctx context.Context, conn *fleet.Conn, route string) (all []owner.Generation, err error) {
	counts, err := subjects(ctx, conn, route)
	if err != nil {
		return nil, err
	}
	partitions := make(map[uint64]int)
	for subject := range counts {
		if generation, partition, ok := fleet.ParseWork(subject); ok {
			partitions[generation] = max(partitions[generation], partition+1)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(partitions)) {
		all = append(all, owner.Generation{Number: number, Partitions: partitions[number]})
	}
	return all, nil
}

// Stranded are deltas that wait for workers of a route that has none in the present configuration.
type Stranded struct {
	Route   string // its id
	Subject string // of the messages in the stream
	Waiting int64
}

// Audit compares the announced routes with the present configuration: it announces again what the
// bucket has lost, withdraws former routes without deltas, and finds the deltas that no process
// handles. It notices that the stream was purged up to its lead record, by which the next batch
// would not notice it. The leader calls it every few seconds.
func (o *Outbox) Audit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	conn := o.config.Conn
	gone, err := o.witness.gone(ctx, conn)
	if err != nil {
		return err
	}
	if gone {
		logEmptied(o.config.Log, conn.Names.Work())
	}
	// Before the first configuration all routes would look like former ones.
	known, used := o.present()
	if !used {
		return nil
	}
	found, err := records(ctx, conn)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", conn.Names.Owners(), err)
	}
	var stranded []Stranded
	var done []string
	for token, r := range found {
		if _, has := known[token]; has {
			continue
		}
		n, err := Waiting(ctx, conn, r.ID)
		if err != nil {
			return err
		}
		if n > 0 {
			stranded = append(stranded, Stranded{Route: r.ID, Subject: conn.Names.WorkRoute(r.ID), Waiting: n})
		} else if r.Hash != "" { // a record without a hash is withdrawn already
			done = append(done, r.ID)
		}
	}
	o.audited(known, found, stranded, done)
	return nil
}

// present returns the sinks of the present configuration by token: those that are announced, and
// nil for the others. used reports whether the configuration is known.
func (o *Outbox) present() (known map[string]*Sink, used bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known = make(map[string]*Sink)
	for _, s := range o.current {
		d := o.routes[s.route.ID]
		if known[fleet.Token(s.route.ID)] = nil; d.announced {
			known[fleet.Token(s.route.ID)] = d.sink
		}
	}
	return known, o.used
}

// records returns the records of the routes, by token.
func records(ctx context.Context, conn *fleet.Conn) (map[string]owner.Record, error) {
	bucket, err := conn.JS.KeyValue(ctx, conn.Names.Owners())
	if err != nil {
		return nil, err
	}
	w, err := bucket.Watch(ctx, "*", jetstream.IgnoreDeletes()) // a key with dots is a partition
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }()
	all := make(map[string]owner.Record)
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case e, ok := <-w.Updates():
			if !ok {
				return nil, errors.New("the watch has ended")
			}
			if e == nil { // all are there
				return all, nil
			}
			var r owner.Record
			if err := json.Unmarshal(e.Value(), &r); err != nil {
				return nil, fmt.Errorf("key %s: %w", e.Key(), err)
			}
			all[e.Key()] = r
		}
	}
}

// audited keeps the result of an audit: the deltas that no process handles, and former routes
// without deltas, which are withdrawn. It compares the sinks that were announced with the records.
func (o *Outbox) audited(announced map[string]*Sink, found map[string]owner.Record, stranded []Stranded, done []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range stranded {
		if !slices.ContainsFunc(o.stranded, func(b Stranded) bool { return b.Route == s.Route }) {
			o.config.Log.Error("fleet: deltas of a route wait for workers, which the configuration does not give it any more; "+
				"configure workers for it until router status shows that none waits; they come after newer ones, so resync the route then", "route", s.Route, "waiting", s.Waiting)
		}
	}
	o.stranded = stranded
	// The audit took some time: a route that was announced or replaced since is left out.
	for token, s := range announced {
		if s == nil || found[token].Hash == s.route.Hash {
			continue
		}
		if d := o.routes[s.route.ID]; d.announced && d.sink == s && !d.gone {
			d.announced = false
			o.config.Log.Warn("fleet: the entry of a route for the workers is gone or altered, and is written again", "route", s.route.ID)
		}
	}
	for _, id := range done {
		if d := o.routes[id]; d == nil || d.gone {
			o.routes[id] = &destination{gone: true}
		}
	}
	o.kick()
}

// Stranded returns the deltas that nobody handles, as of the last [Outbox.Audit].
func (o *Outbox) Stranded() []Stranded {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.stranded)
}
