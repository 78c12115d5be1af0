package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// The values of [sinkConfig].Mode.
const (
	structured = "structured"
	binary     = "binary"
	batched    = "batched"
)

// sinkConfig is the configuration below `webhook:`.
type sinkConfig struct {
	URL            config.Secret            `yaml:"url,required" doc:"URL of the receiver. Logs and errors show only its scheme and host."`
	Mode           string                   `yaml:"mode" default:"structured" enum:"structured binary batched" doc:"structured: the body is the event. binary: the body is the data, and the attributes are headers. batched: the body is a list of events."`
	MaxBatch       config.Size              `yaml:"maxBatch" default:"1Mi" min:"1" doc:"Maximum size of the body with mode: batched. A larger event is sent alone. The route's batch.size limits the number of events."`
	Body           *config.Expr             `yaml:"body" doc:"CEL over event and secrets: the body, instead of a CloudEvent. A string is sent unchanged, any other value as JSON."`
	Secrets        map[string]config.Secret `yaml:"secrets" doc:"Secrets for body by name, as in secrets.name."`
	ContentType    string                   `yaml:"contentType" doc:"Content-Type of body. Absent: text/plain for a string, otherwise application/json."`
	Headers        map[string]config.Secret `yaml:"headers" doc:"Headers to send."`
	TLS            tlsfiles.Config          `yaml:"tls" doc:"TLS settings of a URL with https: the certificate authorities of the receiver, and a client certificate. Files are read again when they change."`
	Unavailable    []int                    `yaml:"unavailable" doc:"HTTP statuses that mean, beside those of the kind, that the receiver is unavailable."`
	Rejected       []int                    `yaml:"rejected" doc:"HTTP statuses that reject the event, although by default the receiver counts as unavailable, as 403."`
	Timeout        time.Duration            `yaml:"timeout" default:"10s" min:"1ms" max:"10m" doc:"Timeout of a request, including its response."`
	ConnectTimeout time.Duration            `yaml:"connectTimeout" default:"5s" min:"1ms" max:"10m" doc:"Timeout of the connection, and of the TLS handshake."`
}

// Kind returns the kind of sink `webhook`.
func Kind() plugins.SinkKind {
	return kind{plugins.SinkDefinition[sinkConfig]{New: newSink, Definition: plugins.Definition[sinkConfig]{
		Name: "webhook",
		Doc:  "Posts events over HTTP, as CloudEvents or with a body of an expression. 2xx delivers. 401, 403, 407, 408, 425, 429, 5xx and no response mean that the receiver is unavailable. Any other status rejects the event.",
		Example: `url: {file: /secrets/url} # or {env: NAME}, or the URL itself
mode: batched            # or structured, or binary
maxBatch: 1Mi
# In place of a CloudEvent, so of mode:
# body: '{"key": secrets.key, "text": event.subject}'
# secrets: {key: {file: /secrets/key}}
# contentType: application/json
headers:
  Authorization: {file: /secrets/authorization}
tls:
  ca: {file: /secrets/ca.pem}
  cert: {file: /secrets/cert.pem}
  key: {file: /secrets/key.pem}
  serverName: hooks.example.com
unavailable: [404] # statuses that mean something else here
rejected: [403]
timeout: 10s
connectTimeout: 5s
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

// EventReads returns body, and its reads of members that an event may not have; nil: the sink sends
// the event. `router check` compares them with the events of routes.
func (kind) EventReads(n config.Node) (*config.Expr, []cel.EventRead) {
	var c sinkConfig
	_ = n.Decode(&c) // Check has accepted it
	if c.Body == nil {
		return nil, nil
	}
	program, err := cel.CompileEvent(c.Body.Text)
	if err != nil {
		return nil, nil
	}
	return c.Body, program.Reads()
}

// Body returns a function that evaluates body for an event and returns the result as JSON, with
// `(secret NAME)` for each secret; nil: the sink sends the event. Its errors are those of Write. It
// is safe for concurrent use. Package simulate calls it, because nothing is sent in a trial.
func (kind) Body(n config.Node) func(ctx context.Context, e *event.Event) ([]byte, error) {
	var c sinkConfig
	_ = n.Decode(&c) // Check has accepted it
	if c.Body == nil {
		return nil
	}
	program, err := cel.CompileEvent(c.Body.Text)
	secrets := make(map[string]string, len(c.Secrets))
	for name := range c.Secrets {
		secrets[name] = "(secret " + name + ")"
	}
	return func(ctx context.Context, e *event.Event) ([]byte, error) {
		if err != nil {
			return nil, err
		}
		return evalBody(ctx, program, e, secrets)
	}
}

// Validate implements [config.Validator]. It does not check a URL or header in a file or variable,
// because these can change.
func (c *sinkConfig) Validate(n config.Node) config.Problems {
	var problems config.Problems
	if at := n.At("url"); len(at.Keys()) == 0 {
		if text, err := c.URL.Value(); err == nil {
			if _, err := parseURL(text); err != nil {
				problems = append(problems, at.Problemf("%v", err))
			}
		}
	}
	for name := range c.Headers {
		at := n.At("headers").At(name)
		switch key := http.CanonicalHeaderKey(name); {
		case !isToken(name):
			problems = append(problems, at.Problemf("is not a header name: it has only letters, digits and characters like -, and no blank"))
		case strings.HasPrefix(key, "Ce-") || slices.Contains([]string{"Content-Type", "Content-Length", "Transfer-Encoding", "Connection"}, key):
			problems = append(problems, at.Problemf("is set by the sink itself: remove it"))
		}
	}
	codes := c.codes()
	problems = append(problems, codes.Check(n)...)
	return append(problems, c.checkBody(n)...)
}

func (c *sinkConfig) codes() httpsink.Codes {
	return httpsink.Codes{Unavailable: c.Unavailable, Rejected: c.Rejected}
}

// Warn implements [plugins.Warner]. It reports headers and secrets that the sink would send without
// encryption. It ignores a URL that cannot be read now.
func (kind) Warn(n config.Node) config.Problems {
	var c sinkConfig
	_ = n.Decode(&c) // Check has accepted it
	text, err := c.URL.Value()
	if err != nil {
		return nil
	}
	u, err := parseURL(text)
	if err != nil || u.Scheme != "http" {
		return nil
	}
	for _, sent := range []struct {
		key   string
		value map[string]config.Secret
	}{{"headers", c.Headers}, {"secrets", c.Secrets}} {
		if len(sent.value) > 0 {
			return plugins.Plaintext(n.At(sent.key), "the "+sent.key+" go", u.Hostname(), "write https:// in url")
		}
	}
	return nil
}

// checkBody compiles the body expression, and reports keys that require another one.
func (c *sinkConfig) checkBody(n config.Node) (problems config.Problems) {
	if c.Body == nil {
		for _, key := range []string{"secrets", "contentType"} {
			if at := n.At(key); !at.IsZero() {
				problems = append(problems, at.Problemf("requires body: add body, or remove this key"))
			}
		}
	} else if at := n.At("mode"); !at.IsZero() {
		problems = append(problems, at.Problemf("applies to CloudEvents, which body replaces: remove one of the two"))
	} else if _, err := cel.CompileEvent(c.Body.Text); err != nil {
		for _, failed := range cel.CompileErrors(err) {
			for _, issue := range failed.Issues {
				problems = append(problems, c.Body.Problem(issue.Line, issue.Column, issue.Message))
			}
		}
		if len(problems) == 0 {
			problems = append(problems, c.Body.Problem(1, 0, err.Error()))
		}
	}
	if at := n.At("maxBatch"); !at.IsZero() && c.Mode != batched {
		problems = append(problems, at.Problemf("requires mode: batched"))
	}
	return problems
}

// parseURL parses the URL of the receiver. Its errors do not quote the URL.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		return nil, fmt.Errorf("not a URL: %w", withoutQuotes(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("not a URL that starts with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("not a URL with a host")
	}
	return u, nil
}

// withoutQuotes removes the input that url.Parse quotes.
func withoutQuotes(err error) error {
	reason, _, _ := strings.Cut(err.Error(), `"`)
	return errors.New(strings.TrimSpace(reason))
}

// isToken reports whether s is a token of RFC 9110. Header names must be tokens.
func isToken(s string) bool {
	notToken := func(r rune) bool {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	return s != "" && !strings.ContainsFunc(s, notToken)
}
