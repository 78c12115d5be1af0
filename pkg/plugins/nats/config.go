package nats

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/natsconn"
	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// sinkConfig is the configuration below `nats:`.
type sinkConfig struct {
	Servers []string               `yaml:"servers,required" min:"1" doc:"URLs of the servers of one cluster: nats://host:4222, or tls://host:4222."`
	Subject string                 `yaml:"subject" default:"k8s.{source}.{namespace}.{name}" doc:"Subject of the messages. A token may be {cluster}, {source}, {kind}, {namespace}, {name}, {op}, {route} or {type}. Any value becomes one token."`
	Stream  streamConfig           `yaml:"stream" doc:"The JetStream stream that stores the events."`
	Auth    config.NATSCredentials `yaml:"auth" doc:"The credentials of the router: one of creds, nkey, token, and user with password."`
	TLS     tlsfiles.Config        `yaml:"tls" doc:"TLS settings: the certificate authorities of the server, and a client certificate."`
	Timeout time.Duration          `yaml:"timeout" default:"10s" min:"10ms" max:"10m" doc:"Maximum time to connect, and for the acknowledgement of a batch."`
}

// streamConfig names the stream that stores the events, and its settings if the sink creates it.
type streamConfig struct {
	Name       string        `yaml:"name" doc:"The stream that must store the events. Absent: any stream with the subject."`
	Create     bool          `yaml:"create" doc:"Create the stream if it does not exist. An existing stream is never changed."`
	Storage    string        `yaml:"storage" default:"file" enum:"file memory" doc:"Storage of a created stream."`
	Replicas   int           `yaml:"replicas" default:"1" min:"1" max:"5" doc:"Number of servers that store a created stream."`
	MaxAge     time.Duration `yaml:"maxAge" doc:"Maximum age of the events in a created stream. 0: no limit."`
	MaxBytes   config.Size   `yaml:"maxBytes" doc:"Maximum size of a created stream. Beyond it the oldest events are removed. 0: no limit."`
	Duplicates time.Duration `yaml:"duplicates" default:"2m" min:"100ms" doc:"Time during which a created stream drops duplicate events, by their ids."`
}

// Kind returns the kind of sink `nats`.
func Kind() plugins.SinkKind {
	return kind{plugins.SinkDefinition[sinkConfig]{New: newSink, Definition: plugins.Definition[sinkConfig]{
		Name: "nats",
		Doc:  "Publishes each event to NATS JetStream as a CloudEvent in binary mode, and waits for the stream's acknowledgement. The Nats-Msg-Id is the event's id, by which the stream drops duplicates.",
		Example: `servers: [tls://nats-0.nats:4222, tls://nats-1.nats:4222]
subject: k8s.{source}.{namespace}.{name}
stream: {name: k8s, create: true, storage: file, replicas: 3, maxAge: 72h, maxBytes: 10Gi, duplicates: 2m}
auth: {creds: {file: /secrets/router.creds}} # or nkey: or token:, or user: and password:
tls: {ca: {file: /secrets/ca.crt}, cert: {file: /secrets/tls.crt}, key: {file: /secrets/tls.key}, serverName: nats.example.com}
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
	problems := c.connection().Check(n.At("servers"))
	if _, err := parseSubject(c.Subject); err != nil {
		problems = append(problems, n.At("subject").Problemf("%v", err))
	}
	return problems
}

// Warn implements [plugins.Warner].
func (kind) Warn(n config.Node) config.Problems {
	var c sinkConfig
	_ = n.Decode(&c) // Check has accepted it
	return c.connection().Warn(n.At("servers"))
}

// connection returns the settings of a connection.
func (c *sinkConfig) connection() natsconn.Settings {
	return natsconn.Settings{Servers: c.Servers, Credentials: &c.Auth, TLS: &c.TLS, Key: "auth"}
}

// Validate implements [config.Validator].
func (s *streamConfig) Validate(n config.Node) config.Problems {
	var problems config.Problems
	if strings.ContainsAny(s.Name, " \t\r\n.*>/\\") {
		problems = append(problems, n.At("name").Problemf("must not have blanks, or any of . * > / \\"))
	}
	if s.Create && s.Name == "" {
		problems = append(problems, n.At("create").Problemf("needs the stream's name"))
	}
	if s.MaxAge > 0 && s.Duplicates > s.MaxAge {
		problems = append(problems, n.At("duplicates").Problemf("must not be longer than maxAge: the stream cannot detect duplicates of removed events"))
	}
	if s.Create {
		return problems
	}
	for _, key := range []string{"storage", "replicas", "maxAge", "maxBytes", "duplicates"} {
		if slices.Contains(n.Keys(), key) {
			problems = append(problems, n.At(key).Problemf("applies to a created stream only: add create: true, or remove this key"))
		}
	}
	return problems
}

// names returns the names of the servers for errors.
func (c *sinkConfig) names() string {
	if len(c.Servers) == 1 {
		return c.Servers[0]
	}
	return fmt.Sprintf("%s and %d more", c.Servers[0], len(c.Servers)-1)
}

// hide returns err without the credentials, which a server, or another host in its place, may
// repeat.
func (c *sinkConfig) hide(err error) error {
	var secrets []string
	for _, s := range []config.Secret{c.Auth.Token, c.Auth.Password, c.Auth.NKey, c.Auth.Creds} {
		value, missing := s.Value()
		if missing != nil {
			continue
		}
		secrets = append(secrets, value)
		for word := range strings.FieldsSeq(value) { // of creds: the token and the seed
			if len(word) >= leastCredential {
				secrets = append(secrets, word)
			}
		}
	}
	return httpsink.Hide(err, httpsink.Secrets(nil, nil, secrets...))
}

// leastCredential is less than the length of a token or seed in the file of creds, in bytes.
const leastCredential = 32
