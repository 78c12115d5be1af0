package otlp

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/tlsfiles"
)

// Config is what stands below `otlp:` in the configuration.
type Config struct {
	Endpoint  string                   `yaml:"endpoint,required" doc:"URL of the receiver: http:// or https://, a host and a port. With protocol http and no path, the path is /v1/logs."`
	Protocol  string                   `yaml:"protocol" default:"grpc" enum:"grpc http" doc:"grpc: OTLP/gRPC, by custom on port 4317. http: OTLP/HTTP with protobuf, by custom on port 4318."`
	Headers   map[string]config.Secret `yaml:"headers" doc:"Headers (of gRPC: metadata) to send."`
	TLS       tlsfiles.Config          `yaml:"tls" doc:"Of an endpoint with https: who vouches for the receiver, and a client certificate."`
	MaxEvents int                      `yaml:"maxEvents" default:"512" min:"1" max:"10000" doc:"Most events of a request."`
	MaxBytes  config.Size              `yaml:"maxBytes" default:"3Mi" min:"1Ki" max:"64Mi" doc:"About how large a request may be; an event that is larger is a request of its own. Receivers take 4 MiB by default."`
	Timeout   time.Duration            `yaml:"timeout" default:"10s" min:"1ms" max:"10m" doc:"How long a request may take."`
}

// Factory returns the factory of the kind otlp.
func Factory() plugins.Factory[plugins.Sink] {
	return plugins.Factory[plugins.Sink]{
		Kind:   "otlp",
		Doc:    "Sends each event as a log record of OpenTelemetry to a collector, or to whatever else takes OTLP, with the semantic conventions for Kubernetes.",
		Config: Config{},
		Example: `endpoint: https://collector.example.com:4317
protocol: grpc # or http
headers:
  authorization: {file: /secrets/authorization}
tls: {ca: {file: /secrets/ca.crt}, cert: {file: /secrets/tls.crt}, key: {file: /secrets/tls.key}, serverName: collector}
maxEvents: 512
maxBytes: 3Mi
timeout: 10s
`,
		Check: func(node config.Node) config.Problems { return node.Decode(&Config{}) },
		Probe: probe,
		Open: func(_ context.Context, node config.Node, env plugins.Env) (plugins.Sink, error) {
			var c Config
			if err := node.Decode(&c).Err(); err != nil {
				return nil, err
			}
			return newSink(c, env)
		},
	}
}

// Validate implements [config.Validator].
func (c *Config) Validate(n config.Node) config.Problems {
	var problems config.Problems
	u, err := url.Parse(c.Endpoint)
	switch {
	case c.Endpoint == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		problems = append(problems, n.At("endpoint").Problemf("must be like http://collector:4317 or https://collector:4318/v1/logs"))
	case u.User != nil:
		problems = append(problems, n.At("endpoint").Problemf("has a user or password: write the header authorization below headers"))
	case c.Protocol == "grpc" && (u.Port() == "" || strings.Trim(u.Path, "/") != ""):
		problems = append(problems, n.At("endpoint").Problemf("needs a port and no path with gRPC, as in http://collector:4317; or set protocol: http"))
	case u.Scheme == "http" && !c.TLS.IsZero():
		problems = append(problems, n.At("tls").Problemf("is for an endpoint with https://"))
	}
	return append(problems, c.validateHeaders(n.At("headers"))...)
}

func (c *Config) validateHeaders(n config.Node) config.Problems {
	var problems config.Problems
	for name := range c.Headers {
		key := strings.ToLower(name)
		switch {
		case !isToken(name) || strings.HasSuffix(key, "-bin"):
			problems = append(problems, n.At(name).Problemf("is not a header name: it has only letters, digits, - and _, and does not end in -bin"))
		case strings.HasPrefix(key, "grpc-") || key == "content-type" || key == "content-length" || key == "host" || key == "te" || key == "user-agent":
			problems = append(problems, n.At(name).Problemf("is set by the sink itself: remove it"))
		}
	}
	return problems
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
	})
}

// url returns where requests go.
func (c *Config) url() *url.URL {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return &url.URL{} // Validate has refused it
	}
	if c.Protocol == "http" && strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/logs"
	}
	return u
}

// read returns the headers as they are now.
func (c *Config) read() (http.Header, error) {
	h := http.Header{}
	for name, secret := range c.Headers {
		value, err := secret.Value()
		if err != nil {
			return nil, &headerError{name, err}
		}
		h.Set(name, value)
	}
	return h, nil
}

// headerError is about a header whose value cannot be read.
type headerError struct {
	name string
	err  error
}

func (e *headerError) Error() string { return "header " + e.name + ": " + e.err.Error() }
func (e *headerError) Unwrap() error { return e.err }
