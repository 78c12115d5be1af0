package otlp

import (
	"net/url"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// sinkConfig is the configuration below `otlp:`.
type sinkConfig struct {
	Endpoint  string                   `yaml:"endpoint,required" doc:"URL of the receiver: http:// or https://, a host and a port. With protocol http and no path, the path is /v1/logs."`
	Protocol  string                   `yaml:"protocol" default:"grpc" enum:"grpc http" doc:"grpc: OTLP/gRPC, usually on port 4317. http: OTLP/HTTP with protobuf, usually on port 4318."`
	Headers   map[string]config.Secret `yaml:"headers" doc:"Headers (of gRPC: metadata) to send."`
	TLS       tlsfiles.Config          `yaml:"tls" doc:"TLS settings of an endpoint with https: the certificate authorities of the receiver, and a client certificate."`
	MaxEvents int                      `yaml:"maxEvents" default:"512" min:"1" max:"10000" doc:"Maximum number of events in a request."`
	MaxBytes  config.Size              `yaml:"maxBytes" default:"3Mi" min:"1Ki" max:"64Mi" doc:"Approximate maximum size of a request. A larger event is sent alone. Receivers accept 4 MiB by default."`
	Timeout   time.Duration            `yaml:"timeout" default:"10s" min:"1ms" max:"10m" doc:"Timeout of a request."`
}

// defaultPath is the path for logs in the specification of OTLP/HTTP.
const defaultPath = "/v1/logs"

// Kind returns the kind of sink `otlp`.
func Kind() plugins.SinkKind {
	return kind{plugins.SinkDefinition[sinkConfig]{New: newSink, Definition: plugins.Definition[sinkConfig]{
		Name: "otlp",
		Doc:  "Sends each event as a log record of OpenTelemetry, with the semantic conventions for Kubernetes, to a collector or another receiver of OTLP.",
		Example: `endpoint: https://collector.example.com:4317
protocol: grpc # or http
headers:
  authorization: {file: /secrets/authorization}
tls: {ca: {file: /secrets/ca.crt}, cert: {file: /secrets/tls.crt}, key: {file: /secrets/tls.key}, serverName: collector}
maxEvents: 512
maxBytes: 3Mi
timeout: 10s
`,
	}}}
}

type kind struct {
	plugins.SinkDefinition[sinkConfig]
}

var _ interface {
	plugins.Warner
	plugins.Prober
} = kind{}

// Validate implements [config.Validator].
func (c *sinkConfig) Validate(n config.Node) config.Problems {
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
		problems = append(problems, n.At("tls").Problemf("requires an endpoint with https://"))
	}
	return append(problems, c.validateHeaders(n.At("headers"))...)
}

// Warn implements [plugins.Warner]. It reports headers that the sink would send without encryption.
func (kind) Warn(n config.Node) config.Problems {
	var c sinkConfig
	_ = n.Decode(&c) // Check has accepted it
	if u := c.url(); u.Scheme == "http" && len(c.Headers) > 0 {
		return plugins.Plaintext(n.At("headers"), "the headers go", u.Hostname(), "write https://")
	}
	return nil
}

func (c *sinkConfig) validateHeaders(n config.Node) config.Problems {
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

// url returns the URL of requests.
func (c *sinkConfig) url() *url.URL {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return &url.URL{} // Validate has rejected it
	}
	if c.Protocol == "http" && strings.Trim(u.Path, "/") == "" {
		u.Path = defaultPath
	}
	return u
}
