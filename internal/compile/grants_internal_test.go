package compile

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
)

// seer is a kind of handlers that look up Secrets.
type seer struct{ fakekind.Handler }

func (seer) Lookups(config.Node) []plugins.LookupGrant {
	return []plugins.LookupGrant{{Source: "tokens"}, {Source: "tokens", Index: "name"}, {Source: "pods"}}
}

func (seer) Remembers(config.Node) bool { return true }

// TestHandlersOfWorkers: a handler on workers cannot look up Secrets, and one that stores values
// does not also run at the leader. Each include has an instance of its own.
func TestHandlersOfWorkers(t *testing.T) {
	kinds := []plugins.HandlerKind{seer{fakekind.Handler{Definition: fakekind.Define("seer")}}}
	cfg := &config.Config{
		Handlers: map[string]*config.Component{"h": {Kind: "seer"}},
		Sources:  map[string]*config.Source{"pods": {Resource: "v1/pods"}, "tokens": {Resource: "v1/secrets", Secrets: true}},
	}
	all, problems := grants(cfg, kinds)
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	route := func(name, prefix string, workers *config.Workers) Route {
		r := &config.Route{Name: name, Handler: "h", Workers: workers}
		if prefix != "" {
			r.Fragment = &config.Fragment{Scope: &config.Scope{Prefix: prefix}}
		}
		return Route{Route: r, Instance: r.Scope().Qualified("h"), HandlerGrants: all["h"]}
	}
	far, local := &config.Workers{}, (*config.Workers)(nil)
	const secrets = `handler "h" looks up Secrets (source "tokens"), which do not leave the leader: remove workers, or the look-up`
	const without, with = `handler "h" stores values (kv), and route "here" without workers uses it, too: `, `handler "h" stores values (kv), and route "there" with workers uses it, too: `
	for name, tt := range map[string]struct {
		routes, others []Route
		want           []string
	}{
		"without workers":                     {[]Route{route("here", "", local)}, nil, nil},
		"both":                                {[]Route{route("here", "", local), route("there", "", far)}, nil, []string{secrets, without}},
		"another include":                     {[]Route{route("there", "a", far)}, []Route{route("here", "", local), route("here", "b", local)}, []string{secrets}},
		"another file of the include":         {[]Route{route("there", "a", far)}, []Route{route("here", "a", local)}, []string{secrets, without}},
		"a file before has workers":           {[]Route{route("here", "a", local)}, []Route{route("there", "a", far)}, []string{with}},
		"the workers of the file before only": {[]Route{route("here", "a", local)}, []Route{route("there", "b", far)}, nil},
	} {
		c := &compiler{main: cfg, handlers: kinds}
		problems := checkWorkers(c, tt.routes, tt.others)
		ok := len(problems) == len(tt.want)
		for i := range min(len(problems), len(tt.want)) {
			ok = ok && strings.HasPrefix(problems[i].Message, tt.want[i])
		}
		if !ok {
			t.Errorf("%s: got %v, want %q", name, problems, tt.want)
		}
	}
}
