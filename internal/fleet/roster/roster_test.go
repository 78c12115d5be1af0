package roster_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/roster"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestRoster: members see each other as soon as the bucket exists, a change of a role at once, and
// one that has ended no more. Without NATS a member shows itself.
func TestRoster(t *testing.T) {
	cluster := natstest.Start(t, natstest.Config{})
	connect := func() *fleet.Conn {
		cfg := &config.Fleet{Name: "test", Replicas: 1, NATS: config.NATS{Servers: cluster.URLs()}}
		c, err := fleet.Connect(t.Context(), cfg, "test", slog.New(slog.DiscardHandler))
		must.Succeed(t, err)
		t.Cleanup(func() { must.Report(t, c.Close()) })
		return c
	}
	one, two := connect(), connect()
	start := func(c *fleet.Conn, name, role string) (*roster.Roster, func()) {
		r := roster.New(c, name, slog.New(slog.DiscardHandler))
		r.Show(func() roster.Member { return roster.Member{Role: role, Version: "v"} })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		stop := sync.OnceFunc(func() { cancel(); running.Wait() })
		t.Cleanup(stop)
		return r, stop
	}
	a, stop := start(one, "a", roster.Leader)
	b, _ := start(two, "b", roster.Standby)
	sees := func(r *roster.Roster, want string) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.After(time.Minute); ; {
			got := ""
			for _, m := range r.All() {
				got += fmt.Sprint(m.Name, " ", m.Role, "; ")
			}
			if got == want {
				return
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("sees %q, want %q", got, want)
			}
		}
	}
	sees(b, "b standby; ")
	must.Succeed(t, one.Ready(t.Context()))
	must.Succeed(t, one.Ensure(t.Context()))
	sees(a, "a leader; b standby; ")
	sees(b, "a leader; b standby; ")
	b.Show(func() roster.Member { return roster.Member{Role: roster.Leader} })
	sees(a, "a leader; b leader; ")
	stop()
	sees(b, "b leader; ")
	cluster.Servers[0].Kill()
	sees(b, "b leader; ")
}
