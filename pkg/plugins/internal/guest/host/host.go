// Package host contains the functions that guests may import: those of the ABI rtr_v1 and of WASI
// preview 1, and the pauses that package meter inserts. A [Host] has the grants of the guests of
// one handler. A [Scope] is the state of one guest in a call: its fuel, its time, and its events
// and writes, which take effect when the call has succeeded. A [fetchClient] sends the HTTP
// requests of guests to granted hosts: it resolves names itself, connects to the addresses that it
// has checked, follows no redirects, and limits the rate per host.
package host

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// Host contains the grants of the guests of one handler, and the resources for them.
type Host struct {
	config  string // JSON, "null" if there is none
	limits  *abi.Limits
	log     *lines.Log
	allow   Allow
	seed    string // of the random numbers before the first call
	clock   timer.Clock
	began   time.Time // the zero of the monotonic clock
	kv      plugins.KV
	lookup  plugins.Lookup
	granted map[Index]bool
	http    *fetchClient       // nil: none
	program *Program           // nil: guests are no commands
	replay  *callrecord.Replay // nil: the host answers by itself
	stored  plugins.KV         // of the handler, also without a grant
}

// New returns the host of a handler. config is the JSON for guests.
func New(allow Allow, config string, l *abi.Limits, env plugins.HandlerEnv) *Host {
	r := &Host{
		allow: allow, config: config, limits: l, log: lines.New(env.Log, l.Log, int(l.LogLine)), seed: env.Cluster + "\x00" + env.Name, granted: make(map[Index]bool), clock: timer.Of(env.Clock), replay: callrecord.ReplayOf(env.Replay), stored: env.KV,
	}
	r.began = r.clock.Now().Add(-1) // Go programs do not start at a time of 0, which a test's clock has
	if allow.KV {
		r.kv = env.KV
	}
	for _, name := range allow.Lookup {
		r.granted[parseIndex(name)] = true
	}
	if len(allow.Lookup) > 0 {
		r.lookup = env.Lookup
	}
	if len(allow.HTTP) > 0 {
		r.http = newFetchClient(allow.HTTP, env, r.clock)
	}
	return r
}

// mayLookUp reports whether an index of a source is granted, or the whole source. A grant for a
// whole source includes all its indexes.
func (r *Host) mayLookUp(source, index string) bool {
	return r.lookup != nil && (r.granted[Index{source, ""}] || index != "" && r.granted[Index{source, index}])
}

// Index is an index of a source, or the whole source if Index is empty.
type Index struct{ Source, Index string }

// parseIndex parses source.index, or source.
func parseIndex(text string) Index {
	source, index, _ := strings.Cut(text, ".")
	return Index{source, index}
}

// Clock returns the clock of the router.
func (r *Host) Clock() timer.Clock { return r.clock }

// Settings returns a hash of the inputs of guests that are neither deltas nor answers. fields are
// those of the objects that they get.
func (r *Host) Settings(fields []string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %t %t %+v %q", r.config, r.seed, r.allow.Clock, r.allow.Random, *r.limits, fields)
	if p := r.program; p != nil {
		fmt.Fprintf(sum, " %q %q", p.Args, p.Env)
		if p.Files != nil {
			p.Files.Hash(sum)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// Withheld reports whether inputs of guests may not reach the disk, because a route gives Secrets
// to the handler.
func (r *Host) Withheld() bool {
	kv, ok := r.stored.(interface{ Withheld() bool })
	return ok && kv.Withheld()
}

// Close logs the number of suppressed log lines, and closes idle connections.
func (r *Host) Close() {
	r.log.Report()
	if r.http != nil {
		r.http.Close()
	}
}

// Allow contains the grants of a module. Without an entry nothing is granted.
type Allow struct {
	Lookup []string `yaml:"lookup" doc:"The granted look-ups: source.index, or a whole source."`
	HTTP   []Grant  `yaml:"http" doc:"Hosts that the module may send HTTP requests to."`
	KV     bool     `yaml:"kv" doc:"Grants the store of the handler, whose values persist from call to call."`
	Clock  bool     `yaml:"clock" doc:"Grants the real time. Otherwise the clock shows when the router saw the newest delta of a call."`
	Random bool     `yaml:"random" doc:"Grants real random numbers. Otherwise they depend on the deltas of a call."`
}

// Validate implements [config.Validator].
func (a *Allow) Validate(n config.Node) (problems config.Problems) {
	for i, item := range n.At("lookup").Items() {
		if i < len(a.Lookup) && !lookupSyntax(a.Lookup[i]) {
			problems = append(problems, item.Problemf("must be the name of a source, or source.index"))
		}
	}
	seen := make(map[string]bool)
	for i, item := range n.At("http").Items() {
		if i >= len(a.HTTP) || a.HTTP[i].Address() == "" {
			continue
		}
		if at := a.HTTP[i].Address(); seen[at] {
			problems = append(problems, item.Problemf("%s occurs twice", at))
		} else {
			seen[at] = true
		}
	}
	return problems
}

// lookupSyntax reports whether a text is source or source.index. The host checks whether they
// exist.
func lookupSyntax(text string) bool {
	source, index, dotted := strings.Cut(text, ".")
	return source != "" && (index != "") == dotted && !strings.ContainsAny(index, ". ")
}

// Warn reports headers that the router would send without encryption. n is the node of the grants.
func (a *Allow) Warn(n config.Node) (problems config.Problems) {
	for i, item := range n.At("http").Items() {
		if h := &a.HTTP[i]; h.Scheme == "http" && len(h.Headers) > 0 {
			host, _, _ := net.SplitHostPort(h.Address()) // Validate has accepted it
			problems = append(problems, plugins.Plaintext(item.At("headers"), "the headers go", host, "write scheme: https")...)
		}
	}
	return problems
}

// Lookups returns the look-ups that a node of grants has.
func Lookups(n config.Node) (grants []plugins.LookupGrant) {
	for _, item := range n.At("lookup").Items() {
		var name string
		_ = item.Decode(&name) // Check has accepted it
		of := parseIndex(name)
		grants = append(grants, plugins.LookupGrant{Source: of.Source, Index: of.Index, Node: item})
	}
	return grants
}
