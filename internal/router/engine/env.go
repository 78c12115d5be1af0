package engine

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/router/state"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Env is what the runtime sets of one router have in common: a reload does not change it.
type Env struct {
	Components compile.Components
	Log        *slog.Logger
	Metrics    *metrics.Metrics
	Clock      timer.Clock // what routes and handlers go by, and what deltas are dated by
	Stdout     io.Writer   // where the stdout sink writes
	// the folder for what can be made again where there is no state folder; empty: none
	Cache string
	API   *plugins.API // the API server; nil: there is none
	// Sinks opens what takes the place of a sink of the configuration; nil: that is opened.
	Sinks func(name string) (plugins.Sink, error)
	// HTTP answers the requests of a handler in place of the network; nil: they are sent.
	HTTP func(handler string) http.RoundTripper

	Memories *state.Memories
	Factory  *informer.Factory
	State    *state.State // nil: nothing outlives the process
	// Seen is closed when what happened while the router was down was seen; nil: that is found out,
	// see caughtUp.
	Seen <-chan struct{}
}

// server returns the address of the API server as host:port; empty: there is none.
func (e *Env) server() string {
	if e.API == nil {
		return ""
	}
	return hostPort(e.API.URL)
}

// cacheFolder is the folder in state.dir of what can be made again.
const cacheFolder = "cache"

func (s *Set) pluginEnv(what, name string) plugins.Env {
	return plugins.Env{
		Name: name, Cluster: s.Plan.Config.Cluster.Name, Log: s.env.Log.With(what, name), Metrics: s.env.Metrics, Clock: s.env.Clock,
	}
}

func (s *Set) handlerEnv(name string, workers int) plugins.HandlerEnv {
	env := plugins.HandlerEnv{Env: s.pluginEnv("handler", name), Workers: workers, Cache: s.env.Cache}
	if dir := s.Plan.Config.State.Dir; dir != "" {
		env.Cache = filepath.Join(dir, cacheFolder)
	}
	return env
}

// SinkEnv is what a sink may use of the router; its KV is set where it is opened.
func (s *Set) SinkEnv(name string) plugins.SinkEnv {
	return plugins.SinkEnv{Env: s.pluginEnv("sink", name), Stdout: s.env.Stdout, API: s.env.API}
}
