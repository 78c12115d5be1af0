package kafka

import (
	"context"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/tlsfiles"
)

// Config is what stands below `kafka:` in the configuration.
type Config struct {
	Brokers  []string         `yaml:"brokers,required" min:"1" doc:"host:port of brokers of one cluster; the others are found through them."`
	Topic    string           `yaml:"topic,required" doc:"The topic; it must be there."`
	SASL     SASL             `yaml:"sasl" doc:"As whom the router introduces itself."`
	TLS      *tlsfiles.Config `yaml:"tls" doc:"Speak TLS ({}: with the certificate authorities of the system); who vouches for the brokers, and a client certificate."`
	MaxBytes config.Size      `yaml:"maxBytes" default:"1000000" min:"1Ki" max:"256Mi" doc:"Largest message; not more than the topic's max.message.bytes."`
	Timeout  time.Duration    `yaml:"timeout" default:"10s" min:"10ms" max:"10m" doc:"How long the acknowledgement of a batch may take."`
}

// SASL says as whom the router introduces itself.
type SASL struct {
	Mechanism string        `yaml:"mechanism" default:"scram-sha-512" enum:"plain scram-sha-256 scram-sha-512" doc:"How the password is shown."`
	User      string        `yaml:"user" doc:"A user; needs password."`
	Password  config.Secret `yaml:"password" doc:"The password of user."`
}

// Factory returns the factory of the kind kafka.
func Factory() plugins.Factory[plugins.Sink] {
	return plugins.Factory[plugins.Sink]{
		Kind:   "kafka",
		Doc:    "Produces each event to a topic of Kafka as a CloudEvent in binary mode, with the route's key as the record's key, idempotently and acknowledged by all replicas in sync.",
		Config: Config{},
		Example: `brokers: [kafka-0.kafka:9092, kafka-1.kafka:9092]
topic: k8s
sasl: {mechanism: scram-sha-512, user: router, password: {file: /secrets/password}}
tls: {ca: {file: /secrets/ca.crt}, cert: {file: /secrets/tls.crt}, key: {file: /secrets/tls.key}, serverName: kafka}
maxBytes: 1000000
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

var topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// Validate implements [config.Validator].
func (c *Config) Validate(n config.Node) config.Problems {
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
		problems = append(problems, n.At("topic").Problemf("is no topic: at most 249 letters, digits, dots, - and _, and more than one or two dots"))
	}
	return problems
}

// Validate implements [config.Validator].
func (s *SASL) Validate(n config.Node) config.Problems {
	switch {
	case (s.User == "") != s.Password.IsZero():
		return config.Problems{n.Problemf("needs both user and password")}
	case s.User == "" && slices.Contains(n.Keys(), "mechanism"):
		return config.Problems{n.Problemf("needs a user and a password: without them nobody introduces itself")}
	}
	return nil
}
