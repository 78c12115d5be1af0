// Package roster shows the members and workers of a fleet to each other: each has an entry in the
// bucket of members, which expires if it is not repeated.
package roster

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
)

// Member is the entry of a process. Workers have further fields, see package owner.
type Member struct {
	Name    string    `json:"-"` // the key of the entry
	Role    string    `json:"role"`
	Version string    `json:"version,omitempty"`
	Config  string    `json:"config,omitempty"` // hash of the configuration
	Since   time.Time `json:"since,omitzero"`   // of the role
	// Behind is the lag of a standby; nil: it is not known.
	Behind *float64 `json:"behind,omitempty"`
	// Partitions are the partitions that a worker owns.
	Partitions []string `json:"partitions,omitempty"`
}

// The roles of members.
const (
	Leader  = "leader"
	Standby = "standby"
)

// Roster is the list of the members. It is safe for concurrent use.
type Roster struct {
	conn *fleet.Conn
	own  string // the key of the own entry
	log  *slog.Logger

	wake chan struct{}

	mu       sync.Mutex
	describe func() Member // nil: the process shows no entry
	all      map[string]seen
}

// seen is an entry, and when it came.
type seen struct {
	Member

	at time.Time
}

// New returns a roster whose own entry has a name.
func New(conn *fleet.Conn, own string, log *slog.Logger) *Roster {
	return &Roster{conn: conn, own: own, log: log, wake: make(chan struct{}, 1), all: make(map[string]seen)}
}

// Show replaces the function that describes the own entry, and writes the entry soon.
func (r *Roster) Show(describe func() Member) {
	r.mu.Lock()
	r.describe = describe
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// All returns the entries that did not expire, by name. The own entry is present without NATS, too.
func (r *Roster) All() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	members := make(map[string]Member)
	for name, m := range r.all {
		if time.Since(m.at) <= fleet.MemberTTL {
			members[name] = m.Member
		}
	}
	if r.describe != nil {
		members[r.own] = r.describe()
	}
	all := make([]Member, 0, len(members))
	for name, m := range members {
		m.Name = name
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Read reads the entries until ctx ends, and writes none.
func (r *Roster) Read(ctx context.Context) { r.follow(ctx) }

// Run writes the own entry and reads the others until ctx ends. Then it removes the own entry.
func (r *Roster) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { r.follow(ctx) })
	again := time.NewTimer(0)
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-again.C:
		case <-r.wake:
		case <-ctx.Done():
			continue
		}
		if again.Reset(fleet.MemberTTL / 3); !r.write(ctx) {
			again.Reset(retryAfter)
		}
	}
	both.Wait()
	r.remove(ctx)
}

const (
	// bucketTimeout bounds a request about the own entry.
	bucketTimeout = 5 * time.Second
	// retryAfter is the pause after a failure: the leader may not have made the bucket yet.
	retryAfter = time.Second
)

// write writes the own entry. It returns false if it is to be written again soon.
func (r *Roster) write(ctx context.Context) bool {
	r.mu.Lock()
	describe := r.describe
	r.mu.Unlock()
	if describe == nil || !r.conn.NATS.IsConnected() {
		return describe == nil
	}
	text, err := json.Marshal(describe())
	if err != nil {
		return true // it has texts and numbers only
	}
	ctx, cancel := context.WithTimeout(ctx, bucketTimeout)
	defer cancel()
	bucket, err := r.conn.JS.KeyValue(ctx, r.conn.Names.Members())
	if err == nil {
		_, err = bucket.Put(ctx, r.own, text)
	}
	if err != nil && ctx.Err() == nil {
		r.log.Debug("fleet: the entry of this member was not written", "err", err)
	}
	return err == nil
}

// remove removes the own entry: the process ends.
func (r *Roster) remove(ctx context.Context) {
	if !r.conn.NATS.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if bucket, err := r.conn.JS.KeyValue(ctx, r.conn.Names.Members()); err == nil {
		_ = bucket.Delete(ctx, r.own) // it expires otherwise
	}
}

// follow reads the entries of others, again after each failure.
func (r *Roster) follow(ctx context.Context) {
	pause := time.NewTicker(retryAfter)
	defer pause.Stop()
	for ctx.Err() == nil {
		if err := r.watch(ctx); err != nil && ctx.Err() == nil {
			r.log.Debug("fleet: the members cannot be read", "err", err)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

func (r *Roster) watch(ctx context.Context) error {
	bucket, err := r.conn.JS.KeyValue(ctx, r.conn.Names.Members())
	if err != nil {
		return err
	}
	watcher, err := bucket.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }() // the connection may be closed
	for {
		select {
		case <-ctx.Done():
			return nil
		case entry, ok := <-watcher.Updates():
			if !ok {
				return nil
			}
			if entry != nil { // nil follows the present entries
				r.note(entry)
			}
		}
	}
}

// note records an entry.
func (r *Roster) note(entry jetstream.KeyValueEntry) {
	var m Member
	gone := entry.Operation() != jetstream.KeyValuePut
	if !gone && json.Unmarshal(entry.Value(), &m) != nil {
		return // of a later version
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.all, func(_ string, s seen) bool { return time.Since(s.at) > fleet.MemberTTL })
	if gone {
		delete(r.all, entry.Key())
		return
	}
	// By the own clock, an entry that was written before this process read it is as new as that.
	r.all[entry.Key()] = seen{m, time.Now()}
}
