package otlp

import (
	"net/url"
	"time"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/otlpconn"
	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// sinkConfig is the configuration below `otlp:`.
type sinkConfig struct {
	Endpoint    string                   `yaml:"endpoint,required" doc:"URL of the receiver: http:// or https://, a host and a port. With protocol http and no path, the path is /v1/logs."`
	Protocol    string                   `yaml:"protocol" default:"grpc" enum:"grpc http" doc:"grpc: OTLP/gRPC, usually on port 4317. http: OTLP/HTTP with protobuf, usually on port 4318."`
	Headers     map[string]config.Secret `yaml:"headers" doc:"Headers (of gRPC: metadata) to send."`
	TLS         tlsfiles.Config          `yaml:"tls" doc:"TLS settings of an endpoint with https: the certificate authorities of the receiver, and a client certificate."`
	MaxEvents   int                      `yaml:"maxEvents" default:"512" min:"1" max:"10000" doc:"Maximum number of events in a request."`
	MaxBytes    config.Size              `yaml:"maxBytes" default:"3Mi" min:"1Ki" max:"64Mi" doc:"Approximate maximum size of a request. A larger event is sent alone. Receivers accept 4 MiB by default."`
	Unavailable []int                    `yaml:"unavailable" doc:"With protocol http: statuses that mean, beside those of the kind, that the receiver is unavailable."`
	Rejected    []int                    `yaml:"rejected" doc:"With protocol http: statuses that reject the event, although by default the receiver counts as unavailable, as 403."`
	Timeout     time.Duration            `yaml:"timeout" default:"10s" min:"1ms" max:"10m" doc:"Timeout of a request."`
}

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
# Statuses that mean something else here, with protocol: http:
# unavailable: [404]
# rejected: [403]
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

// connection returns the connection of the sink.
func (c *sinkConfig) connection() *otlpconn.Config {
	return &otlpconn.Config{Endpoint: c.Endpoint, Protocol: c.Protocol, Headers: c.Headers, TLS: c.TLS, Timeout: c.Timeout, Codes: httpsink.Codes{Unavailable: c.Unavailable, Rejected: c.Rejected}}
}

// Validate implements [config.Validator].
func (c *sinkConfig) Validate(n config.Node) config.Problems {
	return c.connection().Check(n, otlpconn.Logs())
}

// Warn implements [plugins.Warner]. It reports headers that the sink would send without encryption.
func (kind) Warn(n config.Node) config.Problems {
	var c sinkConfig
	_ = n.Decode(&c) // Check has accepted it
	return c.connection().Warn(n)
}

// url returns the URL of requests.
func (c *sinkConfig) url() *url.URL { return c.connection().URL(otlpconn.Logs()) }
