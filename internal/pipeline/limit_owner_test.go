package pipeline_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// pods admits an update of n pods with names that begin with a prefix.
func (b *harness) pods(prefix string, n int) {
	b.t.Helper()
	for i := range n {
		b.admit(delta(b.t, event.Updated, fmt.Sprint(prefix, i), 1, 2))
	}
}

// TestOwnedKeys: the limits of the routes of a team have as many keys together as the team may
// have. Beyond it a limit forgets its oldest keys, as at its own bound, and says so. Other routes
// have their own keys. A removed route and a restart return the keys that they do not use.
func TestOwnedKeys(t *testing.T) {
	// Guarantee: limit-keys-owned
	synctest.Test(t, func(t *testing.T) {
		const bound = 20
		limited := func(ids ...string) (routes []spec.Settings) {
			for _, id := range ids {
				r := routeOf(id, "1", &recordingSink{})
				r.ID, r.Limit.Every = id, time.Hour
				routes = append(routes, r)
			}
			return routes
		}
		var log bytes.Buffer
		b, k := startOn(t, pipeline.Config{OwnedKeys: bound, Complaints: complaints.New(slog.New(slog.NewTextHandler(&log, nil)))}, limited("team/a", "team/b", "team/c", "own", "other/a")...)
		keys := func(id string) int { return int(b.value("route_limit_keys", id)) }
		expect := func(when string, of map[string]int) {
			t.Helper()
			for id, want := range of {
				if n := keys(id); n != want {
					t.Errorf("%s: %s has %d keys, want %d", when, id, n, want)
				}
			}
		}
		b.pods("p", 5)
		expect("within", map[string]int{"team/a": 5, "team/b": 5, "team/c": 5, "own": 5, "other/a": 5})
		b.pods("q", 40)
		if n := keys("team/a") + keys("team/b") + keys("team/c"); n < bound || n > bound+2 {
			t.Errorf("the team has %d keys", n)
		}
		expect("beyond", map[string]int{"own": 45, "other/a": bound})
		if n := b.value("route_errors_total", "team/a", "limit_keys"); n == 0 {
			t.Error("no forgotten key is counted")
		}
		const reason = "the limits of all routes of team have used their 20 keys; forgotten keys may be reported too early: choose a limit.key"
		if s := b.statusOf("team/a"); len(s.Lacks) != 1 || !strings.HasPrefix(s.Lacks[0], reason) {
			t.Errorf("the status says %q", s.Lacks)
		}
		pass(2 * time.Second)
		if n := strings.Count(log.String(), reason); n != 1 {
			t.Errorf("the log has the reason %d times:\n%s", n, log.String())
		}
		if s := b.statusOf("own"); len(s.Lacks) != 0 {
			t.Errorf("the status of another route says %q", s.Lacks)
		}
		k.cut(b)
		b.exchange(nil, limited("team/a", "own", "other/a")...)
		k.cut(b)
		pass(2 * time.Minute)
		b.pods("r", 40)
		expect("the other routes are removed", map[string]int{"team/a": bound})
		if s := b.statusOf("team/a"); len(s.Lacks) != 1 {
			t.Errorf("the status says %q", s.Lacks)
		}
		pass(2 * time.Minute)
		if s := b.statusOf("team/a"); len(s.Lacks) != 0 {
			t.Errorf("the status still says %q", s.Lacks)
		}
		pass(time.Hour)
		expect("an hour later", map[string]int{"team/a": 0})
	})
}

// TestOwnedKeysAbandoned: a reload that fails after a new route has restored its state returns what
// the route used of the share.
func TestOwnedKeysAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, second := routeOf("team/a", "1", &recordingSink{}), routeOf("team/b", "1", &recordingSink{})
		a.ID, a.Limit.Every = "team/a", time.Hour
		second.ID, second.Limit.Every = "team/b", time.Hour
		b, k := startOn(t, pipeline.Config{OwnedKeys: 20}, a, second)
		b.pods("p", 10)
		k.cut(b)
		saved := k.known("team/b")
		b.exchange(nil, a)
		k.cut(b)
		change, err := b.Prepare([]spec.Settings{a, second})
		must.Succeed(t, err)
		must.Succeed(t, change.RestoreRules("team/b", saved))
		change.Abandon()
		b.pods("q", 10)
		if n := b.value("route_limit_keys", "team/a"); len(saved) == 0 || n != 20 {
			t.Errorf("%d records, and the route that stays has %v keys, want 20", len(saved), n)
		}
	})
}
