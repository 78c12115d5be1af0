package host

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Grant names a host that guests may send requests to.
type Grant struct {
	Host    string                   `yaml:"host,required" doc:"Exact host:port. The default port of the scheme may be omitted."`
	Scheme  string                   `yaml:"scheme" default:"https" enum:"https http" doc:"https, or http without encryption."`
	Methods []string                 `yaml:"methods" doc:"Granted methods. Empty: GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS."`
	Paths   []string                 `yaml:"paths" doc:"Granted paths: exact, or with all paths below if it ends in /*. Empty: all."`
	Headers map[string]config.Secret `yaml:"headers" doc:"Headers that the router adds. They are hidden from the module, also where a response repeats a value from a file or variable, or of a header for credentials."`
	Rate    int                      `yaml:"rate" default:"10" min:"1" max:"100000" doc:"Maximum number of requests of the handler per second. Further requests wait, within limits.timeout."`
	Private bool                     `yaml:"private" doc:"Grants addresses of private networks and of this machine."`
}

// Address returns the host and port in lower case. It returns an empty text if Host is invalid.
func (h *Grant) Address() string {
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
func (h *Grant) Validate(n config.Node) (problems config.Problems) {
	if h.Address() == "" && h.Host != "" {
		problems = append(problems, n.At("host").Problemf("must be host:port, as in api.example.com:443, without a scheme, a path or a wildcard"))
	}
	for _, item := range n.At("methods").Items() {
		var method string
		if len(item.Decode(&method)) == 0 && !slices.Contains(methods(), method) {
			problems = append(problems, item.Problemf("must be one of %s", strings.Join(methods(), ", ")))
		}
	}
	for _, item := range n.At("paths").Items() {
		var path string
		if len(item.Decode(&path)) == 0 && !isPattern(path) {
			problems = append(problems, item.Problemf("must be a path such as /v1/tickets, or /v1/tickets/* for all below it, without . and .., and not encoded"))
		}
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

// isToken reports whether s is a token of RFC 9110. Header names and methods must be tokens.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// grants reports whether the grant covers the method and path of a request.
func (h *fetchTarget) grants(r *fetchRequest) bool {
	if len(h.Methods) > 0 && !slices.Contains(h.Methods, r.method) {
		return false
	}
	if len(h.Paths) == 0 {
		return true
	}
	path := r.url.EscapedPath()
	if path == "" {
		path = "/" // the path of the request
	}
	return isPlain(path) && slices.ContainsFunc(h.Paths, func(pattern string) bool {
		below, ok := strings.CutSuffix(pattern, "*")
		return path == (&url.URL{Path: pattern}).EscapedPath() || ok && strings.HasPrefix(path, (&url.URL{Path: below}).EscapedPath())
	})
}

// isPlain reports whether every server interprets an escaped path in the same way. Servers differ
// in dots, empty segments, parameters and encoded separators, which could lead outside the granted
// path.
func isPlain(path string) bool {
	first, rest, ok := strings.Cut(path, "/")
	if !ok || first != "" {
		return false
	}
	rest = strings.TrimSuffix(rest, "/")
	if rest == "" {
		return path == "/"
	}
	for segment := range strings.SplitSeq(rest, "/") {
		text, err := url.PathUnescape(segment)
		name, _, _ := strings.Cut(text, ";")
		if err != nil || name == "" || name == "." || name == ".." || strings.ContainsAny(text, "/\\%\x00") {
			return false
		}
	}
	return true
}

// isPattern reports whether a text is valid in paths.
func isPattern(text string) bool {
	above, all := strings.CutSuffix(text, "/*")
	return !strings.ContainsAny(above, "*?#%") && (isPlain(above) || all && above == "")
}
