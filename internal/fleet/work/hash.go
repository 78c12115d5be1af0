package work

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// HashOf identifies the parts of the configuration of a route that concern its workers: the
// handler, the sinks, and the policies for failures. The contents of files that these name do not
// count. A worker handles the deltas of a leader whose hash is its own.
func HashOf(cfg *config.Config, r *config.Route) (string, error) {
	type component struct{ Name, Kind, Config string }
	made := struct {
		Name      string // it is part of the events
		Cluster   string
		Handler   component
		Emits     bool
		Sinks     []component
		Retry     config.Retry
		OnFailure string
		MaxAge    time.Duration
		With      map[string]string `json:",omitempty"`
	}{Name: r.Name, Cluster: cfg.Cluster.Name, Emits: r.Emit != nil, Retry: r.Retry, OnFailure: r.OnFailure, MaxAge: r.MaxAge}
	// Without `with` the hash is that of versions that did not know it.
	for name, e := range r.With {
		if made.With == nil {
			made.With = make(map[string]string)
		}
		made.With[name] = e.Text
	}
	of := func(what, name string, c *config.Component) (component, error) {
		if c == nil {
			return component{}, fmt.Errorf("route %s: %s %q is not configured", r.Name, what, name)
		}
		return component{name, c.Kind, c.Config.Identity()}, nil
	}
	if r.Handler != "" {
		handler, err := of("handler", r.Handler, cfg.Handlers[r.Handler])
		if err != nil {
			return "", err
		}
		made.Handler = handler
	}
	for i := range r.To {
		sink, err := of("sink", r.To[i].Sink, cfg.Sinks[r.To[i].Sink])
		if err != nil {
			return "", err
		}
		made.Sinks = append(made.Sinks, sink)
	}
	text, err := json.Marshal(made)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}
