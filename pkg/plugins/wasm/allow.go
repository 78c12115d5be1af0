package wasm

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Allow is what a module may do beside computing. Nothing is allowed unless it is said here.
type Allow struct {
	Lookup []string   `yaml:"lookup" doc:"What it may look up: source.index, or a whole source."`
	HTTP   []HTTPHost `yaml:"http" doc:"Hosts that it may send HTTP requests to."`
	KV     bool       `yaml:"kv" doc:"Remember values from one call to the next."`
	Clock  bool       `yaml:"clock" doc:"The real time. Else the time is when the router saw the newest delta of a call."`
	Random bool       `yaml:"random" doc:"Real random numbers. Else they follow from what a call is about."`
}

// HTTPHost is a host that guests may send requests to.
type HTTPHost struct {
	Host    string                   `yaml:"host,required" doc:"Exact host:port; the port may be left out if it is that of the scheme."`
	Scheme  string                   `yaml:"scheme" default:"https" enum:"https http" doc:"https, or http for what is not encrypted."`
	Headers map[string]config.Secret `yaml:"headers" doc:"Headers that the router adds; the module does not see them."`
	Rate    int                      `yaml:"rate" default:"10" min:"1" max:"100000" doc:"Most requests per second of the handler."`
	Private bool                     `yaml:"private" doc:"The host may have an address of a private network or of this machine."`
}

// address returns the host with its port, in lower case; empty if it is no host:port.
func (h *HTTPHost) address() string {
	host, port, err := net.SplitHostPort(h.Host)
	if err != nil {
		host, port = strings.Trim(h.Host, "[]"), defaultPort(h.Scheme)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, "/@*? ") {
		return ""
	}
	return net.JoinHostPort(strings.ToLower(host), port)
}

// Validate implements [config.Validator].
func (h *HTTPHost) Validate(n config.Node) (problems config.Problems) {
	if h.address() == "" && h.Host != "" {
		problems = append(problems, n.At("host").Problemf("must be host:port, as in api.example.com:443, without a scheme, a path or a wildcard"))
	}
	for name := range h.Headers {
		at := n.At("headers").At(name)
		switch key := http.CanonicalHeaderKey(name); {
		case !isToken(name):
			problems = append(problems, at.Problemf("is not a header name: it has only letters, digits and characters like -, and no blank"))
		case slices.Contains(ownHeaders(), key):
			problems = append(problems, at.Problemf("is set by the router itself: remove it"))
		}
	}
	return problems
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
		if i >= len(a.HTTP) || a.HTTP[i].address() == "" {
			continue
		}
		if at := a.HTTP[i].address(); seen[at] {
			problems = append(problems, item.Problemf("%s is there twice", at))
		} else {
			seen[at] = true
		}
	}
	return problems
}

// lookupSyntax reports whether a text is source or source.index. What there is of these the host knows.
func lookupSyntax(text string) bool {
	source, index, dotted := strings.Cut(text, ".")
	return source != "" && (index != "") == dotted && !strings.ContainsAny(index, ". ")
}

// isToken reports whether s is a token of RFC 9110, as header names and methods are.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
