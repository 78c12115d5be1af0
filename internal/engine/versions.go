package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// routeVersion identifies the content of a route: an equal version means an equal route.
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
		Scope      *config.Scope
		Workers    string
		Condition  string // it also names the objects that the sources select
	}{Workers: s.Remote.version(p.ID), Scope: p.Scope(), Route: *p.Route, Lookups: make(map[string]source), Secrets: p.Secret}
	made.Route.Upstream = nil // another set of upstream routes does not change the route
	made.Downstream = len(p.Upstream) > 0
	made.Defines = p.Defines()
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
	if p.WhenProgram != nil {
		made.Condition = p.ConditionVersion(s.Plan.Sources)
	}
	if handler := s.handlers[p.Instance]; handler != nil {
		made.Handler = handler.version
	}
	for i := range p.To {
		if target := &p.To[i]; s.sinks[target.Sink] != nil {
			made.Sinks = append(made.Sinks, s.sinks[target.Sink].version)
		} else {
			made.Sinks = append(made.Sinks, target.Name())
		}
	}
	text, err := json.Marshal(made)
	if err != nil {
		return "" // differs from every other version
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

const (
	// caughtUpAfter is the time after the sync of its sources after which a route has received the
	// changes that happened while the router was down: API servers send them as soon as a watch is
	// open.
	caughtUpAfter = time.Second
	// retryRescan is the pause after a failed rescan.
	retryRescan = time.Second
	// rescanShare is the share of the time, as 1/n, that a rescan takes from the watches, in
	// strides of rescanStride objects.
	rescanShare  = 10
	rescanStride = 256
)
