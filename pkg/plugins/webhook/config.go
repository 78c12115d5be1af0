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

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// The values of [Config].Mode.
const (
	structured = "structured"
	binary     = "binary"
)

// Config is what stands below `webhook:` in the configuration.
type Config struct {
	URL     config.Secret            `yaml:"url,required" doc:"Where events are posted; not shown in logs and errors beyond its host."`
	Mode    string                   `yaml:"mode" default:"structured" enum:"structured binary" doc:"structured: the event is the body. binary: its data is the body, its attributes are headers."`
	Headers map[string]config.Secret `yaml:"headers" doc:"Headers to send."`
	Timeout time.Duration            `yaml:"timeout" default:"10s" min:"1ms" max:"10m" doc:"How long a request may take, the response included."`
}

// Factory returns the factory of the kind webhook.
func Factory() plugins.Factory[plugins.Sink] {
	return plugins.Factory[plugins.Sink]{
		Kind:   "webhook",
		Doc:    "Posts each event as a CloudEvent over HTTP. 408, 425, 429, 5xx and no answer mean that the receiver is unavailable; other answers than 2xx reject the event.",
		Config: Config{},
		Example: `url: {file: /secrets/url} # or {env: NAME}, or the URL itself
mode: structured          # or binary
headers:
  Authorization: {file: /secrets/authorization}
timeout: 10s
`,
		Check: func(node config.Node) config.Problems { return node.Decode(&Config{}) },
		Probe: probe,
		Open: func(_ context.Context, node config.Node, env plugins.Env) (plugins.Sink, error) {
			var c Config
			if err := node.Decode(&c).Err(); err != nil {
				return nil, err
			}
			return newSink(c, env), nil
		},
	}
}

// Validate implements [config.Validator]. A URL or header out of a file or variable is looked at when it is used: it can change.
func (c *Config) Validate(n config.Node) config.Problems {
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
	return problems
}

// parseURL reads the URL to post to. Its errors do not quote it.
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

// withoutQuotes cuts off what url.Parse quotes of its input.
func withoutQuotes(err error) error {
	reason, _, _ := strings.Cut(err.Error(), `"`)
	return errors.New(strings.TrimSpace(reason))
}

// isToken reports whether s is a token of RFC 9110, as header names are.
func isToken(s string) bool {
	notToken := func(r rune) bool {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	return s != "" && !strings.ContainsFunc(s, notToken)
}
