package engine

import (
	"cmp"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/codefolder"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Env has the dependencies that all runtime sets of one router share: a reload does not change
// them.
type Env struct {
	Components compile.Components
	Log        *slog.Logger
	Metrics    *metrics.Metrics
	Clock      timer.Clock // the time of routes, handlers and deltas
	Stdout     io.Writer   // where the stdout sink writes
	// the folder for compiled modules: empty means that of the state folder, if there is one, and
	// codefolder.None none
	Cache string
	// Modules is where handlers get modules of registries, unless a state folder has them.
	Modules plugins.Modules
	API     *plugins.API // the API server; nil: there is none
	// Sinks opens a replacement of a sink of the configuration; nil: the sink itself is opened.
	Sinks func(name string) (plugins.Sink, error)
	// HTTP answers the requests of a handler in place of the network; nil: they are sent.
	HTTP func(handler string) http.RoundTripper

	// Lookup answers the look-ups of a handler in place of the caches; nil: the caches do.
	Lookup func(handler string) plugins.Lookup
	// Work passes the deltas of the routes with workers to these; nil: all routes are handled here.
	Work *work.Outbox

	// Allowances limit the CPU that filters of an owner take from the sources; nil: there is no
	// limit.
	Allowances *allowance.Owners

	Memories *Memories
	Factory  *informer.Factory
	State    *State // nil: no state survives the process
	// Seen is closed when the changes that happened while the router was down have arrived; nil:
	// the engine finds that out, see caughtUp.
	Seen <-chan struct{}
}

// server returns the address of the API server as host:port; empty: there is none.
func (e *Env) server() string {
	if e.API == nil {
		return ""
	}
	return hostPort(e.API.URL)
}

func (s *Set) pluginEnv(what, name string) plugins.Env {
	return plugins.Env{
		Name: name, Cluster: s.Plan.Config.Cluster.Name, Log: s.env.Log.With(what, name), Metrics: s.env.Metrics, Clock: s.env.Clock,
	}
}

func (s *Set) handlerEnv(name string, workers int) plugins.HandlerEnv {
	env := plugins.HandlerEnv{Env: s.pluginEnv("handler", name), Workers: workers, Cache: s.env.Cache, Modules: s.env.Modules}
	if dir := s.Plan.Config.State.Dir; dir != "" {
		env.Cache = cmp.Or(env.Cache, filepath.Join(dir, compile.CacheFolder))
		env.Modules.Dir = compile.ModulesOf(s.Plan.Config.State)
	}
	if env.Cache == codefolder.None {
		env.Cache = ""
	}
	return env
}

// SinkEnv returns the services of the router for a sink; its KV is set when the sink is opened.
func (s *Set) SinkEnv(name string) plugins.SinkEnv {
	return plugins.SinkEnv{Env: s.pluginEnv("sink", name), Stdout: s.env.Stdout, API: s.env.API}
}
