package kafka

import (
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// sinkConfig is the configuration below `kafka:`.
type sinkConfig struct {
	Brokers  []string         `yaml:"brokers,required" min:"1" doc:"host:port of some brokers of one cluster. The client finds the others."`
	Topic    string           `yaml:"topic,required" doc:"The topic. It must exist."`
	SASL     saslConfig       `yaml:"sasl" doc:"The credentials of the router."`
	TLS      *tlsfiles.Config `yaml:"tls" doc:"TLS settings: the certificate authorities of the brokers, and a client certificate. {}: TLS with the certificate authorities of the system."`
	MaxBytes config.Size      `yaml:"maxBytes" default:"1000000" min:"1Ki" max:"256Mi" doc:"Maximum size of a message, at most the topic's max.message.bytes."`
	Timeout  time.Duration    `yaml:"timeout" default:"10s" min:"10ms" max:"10m" doc:"Maximum time for the acknowledgement of a batch."`
}

// saslConfig contains the credentials of the router.
type saslConfig struct {
	Mechanism string        `yaml:"mechanism" default:"scram-sha-512" enum:"plain scram-sha-256 scram-sha-512" doc:"The SASL mechanism."`
	User      string        `yaml:"user" doc:"The user. Needs password."`
	Password  config.Secret `yaml:"password" doc:"The password of user."`
}

// Kind returns the kind of sink `kafka`.
func Kind() plugins.SinkKind {
	return kind{plugins.SinkDefinition[sinkConfig]{New: newSink, Definition: plugins.Definition[sinkConfig]{
		Name: "kafka",
		Doc:  "Produces each event to a topic of Kafka as a CloudEvent in binary mode. The key of the record is the route's key. The producer is idempotent, and all in-sync replicas must acknowledge.",
		Example: `brokers: [kafka-0.kafka:9092, kafka-1.kafka:9092]
topic: k8s
sasl: {mechanism: scram-sha-512, user: router, password: {file: /secrets/password}}
tls: {ca: {file: /secrets/ca.crt}, cert: {file: /secrets/tls.crt}, key: {file: /secrets/tls.key}, serverName: kafka}
maxBytes: 1000000
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

var topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// Validate implements [config.Validator].
func (c *sinkConfig) Validate(n config.Node) config.Problems {
	var problems config.Problems
	for i, broker := range n.At("brokers").Items() {
		if i >= len(c.Brokers) {
			break
		}
		host, port, err := net.SplitHostPort(c.Brokers[i])
		if number, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || number == 0 {
			problems = append(problems, broker.Problemf("must be host:port, as in kafka:9092"))
		}
	}
	if c.Topic != "" && (!topicPattern.MatchString(c.Topic) || strings.Trim(c.Topic, ".") == "" && len(c.Topic) < 3) {
		problems = append(problems, n.At("topic").Problemf("is not a topic name: at most 249 letters, digits, dots, - and _, and more than one or two dots"))
	}
	return problems
}

// Warn implements [plugins.Warner]. It reports a password that the sink would send without
// encryption.
func (kind) Warn(n config.Node) config.Problems {
	var c sinkConfig
	_ = n.Decode(&c) // Check has accepted it
	if c.TLS != nil || c.SASL.Mechanism != "plain" || c.SASL.User == "" {
		return nil
	}
	for _, broker := range c.Brokers {
		host, _, _ := net.SplitHostPort(broker) // Validate has accepted it
		if found := plugins.Plaintext(n.At("sasl"), "the password goes", host, "add tls, or use scram-sha-512"); found != nil {
			return found
		}
	}
	return nil
}

// Validate implements [config.Validator].
func (s *saslConfig) Validate(n config.Node) config.Problems {
	switch {
	case (s.User == "") != s.Password.IsZero():
		return config.Problems{n.Problemf("needs both user and password")}
	case s.User == "" && slices.Contains(n.Keys(), "mechanism"):
		return config.Problems{n.Problemf("needs user and password: set both, or remove this key")}
	}
	return nil
}
