package fleet_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

// patience limits the wait of a test. A successful test does not wait so long.
const patience = time.Minute

// section returns the section `fleet` of a configuration. nats is the mapping below nats, and keys
// that below keys, if any.
func section(t *testing.T, nats string, keys ...string) *config.Fleet {
	t.Helper()
	text := fmt.Sprintf("{name: test, replicas: 1, nats: %s}", nats)
	if len(keys) > 0 && keys[0] != "" {
		text = fmt.Sprintf("{name: test, replicas: 1, nats: %s, keys: %s}", nats, keys[0])
	}
	n, problems := config.ParseNode("test.yaml", []byte(text))
	var f config.Fleet
	if problems = append(problems, n.Decode(&f)...); len(problems) > 0 {
		t.Fatal(problems)
	}
	return &f
}

// connect returns a connection with the given mapping below nats.
func connect(t *testing.T, nats string, keys ...string) *fleet.Conn {
	t.Helper()
	c, err := fleet.Connect(t.Context(), section(t, nats, keys...), "test", slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	return c
}

// probe returns the report about servers that can be reached.
func probe(t *testing.T, nats string) fleet.Report {
	t.Helper()
	found, err := fleet.Probe(t.Context(), section(t, nats), fleet.Member, fleet.Worker)
	must.Succeed(t, err)
	return found
}

// connectWorker is connect for a worker.
func connectWorker(t *testing.T, nats string) *fleet.Conn {
	t.Helper()
	c, err := fleet.ConnectWorker(t.Context(), section(t, nats), "test", slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	return c
}
