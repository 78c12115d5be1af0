package wasm

import (
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// rights are what the guests of one handler may do, and what they do it with.
type rights struct {
	allow   Allow
	seed    string // of what is random before the first call
	clock   timer.Clock
	began   time.Time // when the monotonic clock stood at 0
	kv      plugins.KV
	kvLimit int64
	lookup  plugins.Lookup
	granted map[indexName]bool
	http    *httpClient // nil: none
}

func newRights(c *Config, env plugins.Env) *rights {
	r := &rights{
		allow: c.Allow, seed: env.Cluster + "\x00" + env.Name, kvLimit: int64(c.Limits.KV), granted: make(map[indexName]bool), clock: env.Clock,
	}
	if r.clock == nil {
		r.clock = timer.Real()
	}
	r.began = r.clock.Now()
	if c.Allow.KV {
		r.kv = env.KV
	}
	for _, name := range c.Allow.Lookup {
		r.granted[nameIndex(name)] = true
	}
	if len(c.Allow.Lookup) > 0 {
		r.lookup = env.Lookup
	}
	if len(c.Allow.HTTP) > 0 {
		r.http = newHTTPClient(c.Allow.HTTP, env, r.clock)
	}
	return r
}

// mayLookUp reports whether an index of a source, or all of it, is granted. Who may see all objects may find them by any index.
func (r *rights) mayLookUp(source, index string) bool {
	return r.lookup != nil && (r.granted[indexName{source, ""}] || index != "" && r.granted[indexName{source, index}])
}

// indexName names an index; all of a source if index is empty.
type indexName struct{ source, index string }

func nameIndex(text string) indexName {
	source, index, _ := strings.Cut(text, ".")
	return indexName{source, index}
}

func (r *rights) close() {
	if r.http != nil {
		r.http.close()
	}
}

// lookups implements plugins.Factory.Lookups.
func lookups(node config.Node) (grants []plugins.LookupGrant) {
	for _, item := range node.At("allow").At("lookup").Items() {
		var name string
		_ = item.Decode(&name) // Check has accepted it
		of := nameIndex(name)
		grants = append(grants, plugins.LookupGrant{Source: of.source, Index: of.index, Node: item})
	}
	return grants
}
