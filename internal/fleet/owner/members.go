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
)

// Member is a worker as it shows itself in the bucket of members. Other members of the fleet have
// entries with other fields there.
type Member struct {
	Role    string `json:"role"`
	Version string `json:"version,omitempty"`
	Config  string `json:"config,omitempty"` // hash of the configuration
	// Routes are the routes that the worker handles: the hash of the configuration, by token.
	Routes map[string]string `json:"routes,omitempty"`
	// Partitions are the partitions that it owns, for people.
	Partitions []string  `json:"partitions,omitempty"`
	Since      time.Time `json:"since,omitzero"`
}

// RoleWorker is the role of a worker.
const RoleWorker = "worker"

// members are the entries of the bucket that were renewed in the last TTL, by the own clock.
type members struct {
	bucket jetstream.KeyValue
	ttl    time.Duration
	log    *slog.Logger
	kick   func() // called after a change

	mu  sync.Mutex
	all map[string]seen
}

// seen is an entry and the time when it was last written, as far as this process has seen.
type seen struct {
	Member

	at time.Time
}

// live returns the workers that handle a route with a configuration, and when they were last seen.
func (m *members) live(route, hash string) map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	live := map[string]time.Time{}
	for id, e := range m.all {
		if e.Role == RoleWorker && e.Routes[route] == hash && time.Since(e.at) <= m.ttl {
			live[id] = e.at
		}
	}
	return live
}

// watch follows the bucket until ctx ends.
func (m *members) watch(ctx context.Context) {
	follow(ctx, m.bucket, ">", m.ttl, m.log, func(e jetstream.KeyValueEntry) {
		m.mu.Lock()
		before, known := m.all[e.Key()]
		change := true
		if e.Operation() == jetstream.KeyValuePut {
			var now Member
			if err := json.Unmarshal(e.Value(), &now); err != nil {
				m.log.Warn("the entry of a member cannot be read", slog.String("member", e.Key()), slog.Any("err", err))
			}
			m.all[e.Key()] = seen{now, time.Now()}
			change = !known || !maps.Equal(before.Routes, now.Routes) || time.Since(before.at) > m.ttl
		} else {
			delete(m.all, e.Key())
		}
		m.mu.Unlock()
		if change {
			m.kick()
		}
	})
}

// names returns the keys of the map in order.
func names(live map[string]time.Time) []string { return slices.Sorted(maps.Keys(live)) }

// follow calls set with the entries of a bucket, the present ones and each change, until ctx ends.
func follow(ctx context.Context, bucket jetstream.KeyValue, keys string, pause time.Duration, log *slog.Logger, set func(jetstream.KeyValueEntry)) {
	for ctx.Err() == nil {
		if err := once(ctx, bucket, keys, set); err != nil && ctx.Err() == nil {
			log.Debug("bucket cannot be watched", slog.String("bucket", bucket.Bucket()), slog.Any("err", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause / 4):
		}
	}
}

func once(ctx context.Context, bucket jetstream.KeyValue, keys string, set func(jetstream.KeyValueEntry)) error {
	w, err := bucket.Watch(ctx, keys)
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.Updates():
			if !ok {
				return nil
			}
			if e != nil { // nil: the present entries are complete
				set(e)
			}
		}
	}
}
