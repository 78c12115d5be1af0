package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// routeVersion says what a route is made of: if it is the same, the route is.
func (s *Set) routeVersion(p *compile.Route) string {
	type source struct {
		Resync  string
		Indexes map[string]string // the name of each Spec
		Stores  map[string][]string
	}
	made := struct {
		Route      config.Route
		Downstream bool
		Defines    string
		Lookups    map[string]source
		Handler    string
		Sinks      []string
		Secrets    bool
	}{Route: *p.Route, Lookups: make(map[string]source), Secrets: len(p.SecretSources) > 0}
	made.Route.Upstream = nil // other upstream routes make no other route
	made.Downstream = len(p.Upstream) > 0
	made.Defines = s.Plan.Defines()
	for _, name := range p.Lookups() {
		of := source{Resync: s.Plan.Config.Sources[name].Resync.String(), Indexes: make(map[string]string), Stores: make(map[string][]string)}
		for index, spec := range s.indexes[name] {
			of.Indexes[index] = spec.Name
		}
		for _, spec := range s.Plan.Sources[name].Specs {
			of.Stores[spec.ID()] = s.storeIndexes(spec)
		}
		made.Lookups[name] = of
	}
	if handler := s.handlers[p.Handler]; handler != nil {
		made.Handler = handler.version
	}
	for i := range p.To {
		if target := &p.To[i]; target.Sink != "" {
			made.Sinks = append(made.Sinks, s.sinks[target.Sink].version)
		} else {
			made.Sinks = append(made.Sinks, target.Name())
		}
	}
	text, err := json.Marshal(made)
	if err != nil {
		return "" // never the same
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

const (
	// caughtUpAfter is how long after its sources have synced a route takes what happened while the
	// router was down for seen: API servers send that as soon as a watch is open.
	caughtUpAfter = time.Second
	// retryRescan is the pause after a rescan that failed.
	retryRescan = time.Second
	// rescanShare is the part of the time, as 1/n, that a rescan takes from the watches, in strides
	// of rescanStride objects.
	rescanShare  = 10
	rescanStride = 256
)
