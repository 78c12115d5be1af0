// Package otlpconn sends the requests of OpenTelemetry's protocol, OTLP, over gRPC or HTTP. The
// sink kind otlp sends events as log records with it, and package trace/export sends spans.
//
// The specification of OTLP decides the meaning of a response. Certificates and headers from files
// are read again when they change, and no error contains the text of a response.
package otlpconn

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Signal is one of the services of a receiver.
type Signal struct {
	Path   string // of OTLP/HTTP
	Method string // of gRPC
}

// Logs is the service for log records.
func Logs() Signal {
	return Signal{"/v1/logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export"}
}

// Traces is the service for spans.
func Traces() Signal {
	return Signal{"/v1/traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"}
}

// Config is the connection to a receiver.
type Config struct {
	Endpoint string
	Protocol string // grpc or http
	Headers  map[string]config.Secret
	TLS      tlsfiles.Config
	Timeout  time.Duration  // of a request
	Codes    httpsink.Codes // of HTTP
}

// OfTraces returns the connection of an export of traces.
func OfTraces(c *config.Traces) *Config {
	return &Config{Endpoint: c.Endpoint, Protocol: c.Protocol, Headers: c.Headers, TLS: tlsfiles.Config(c.TLS), Timeout: c.Timeout}
}

// URL returns the URL of requests.
func (c *Config) URL(s Signal) *url.URL {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return &url.URL{} // Check has rejected it
	}
	if c.Protocol == "http" && strings.Trim(u.Path, "/") == "" {
		u.Path = s.Path
	}
	return u
}

// Check returns the mistakes in a configuration, whose keys are below n.
func (c *Config) Check(n config.Node, s Signal) config.Problems {
	var problems config.Problems
	u, err := url.Parse(c.Endpoint)
	switch {
	case c.Endpoint == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		problems = append(problems, n.At("endpoint").Problemf("must be like http://collector:4317 or https://collector:4318%s", s.Path))
	case u.User != nil:
		problems = append(problems, n.At("endpoint").Problemf("has a user or password: write the header authorization below headers"))
	case c.Protocol == "grpc" && (u.Port() == "" || strings.Trim(u.Path, "/") != ""):
		problems = append(problems, n.At("endpoint").Problemf("needs a port and no path with gRPC, as in http://collector:4317; or set protocol: http"))
	case u.Scheme == "http" && !c.TLS.IsZero():
		problems = append(problems, n.At("tls").Problemf("requires an endpoint with https://"))
	}
	if c.Protocol == "grpc" && len(c.Codes.Unavailable)+len(c.Codes.Rejected) > 0 {
		for _, key := range []string{"unavailable", "rejected"} {
			if at := n.At(key); !at.IsZero() {
				problems = append(problems, at.Problemf("requires protocol: http"))
			}
		}
	}
	problems = append(problems, c.Codes.Check(n)...)
	return append(problems, c.checkHeaders(n.At("headers"))...)
}

func (c *Config) checkHeaders(n config.Node) config.Problems {
	var problems config.Problems
	for name := range c.Headers {
		key := strings.ToLower(name)
		switch {
		case !isToken(name) || strings.HasSuffix(key, "-bin"):
			problems = append(problems, n.At(name).Problemf("is not a header name: it has only letters, digits, - and _, and does not end in -bin"))
		case strings.HasPrefix(key, "grpc-") || key == "content-type" || key == "content-length" || key == "host" || key == "te" || key == "user-agent":
			problems = append(problems, n.At(name).Problemf("is set by the router itself: remove it"))
		}
	}
	return problems
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
	})
}

// Warn reports headers that would be sent without encryption.
func (c *Config) Warn(n config.Node) config.Problems {
	if u := c.URL(Signal{}); u.Scheme == "http" && len(c.Headers) > 0 {
		return plugins.Plaintext(n.At("headers"), "the headers go", u.Hostname(), "write https://")
	}
	return nil
}

// Probe connects to the receiver, and verifies its certificate for https. It sends no request.
func (c *Config) Probe(ctx context.Context) error {
	if _, err := httpsink.Header(c.Headers); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	u := c.URL(Signal{})
	settings, err := c.TLS.Load()
	if err != nil {
		return fmt.Errorf("%s://%s: %w", u.Scheme, u.Host, err)
	}
	if c.Protocol == "grpc" {
		settings.NextProtos = []string{"h2"}
	}
	return httpsink.Probe(ctx, u, settings)
}
