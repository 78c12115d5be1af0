package kafka_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
)

// Check finds mistakes, and Warn finds valid settings that are probably wrong. Neither connects to
// a broker.
func ExampleKind() {
	kind := kafka.Kind()
	node, _ := config.ParseNode("config.yaml", []byte(`brokers: [kafka.example.com]
topic: k8s/pods
maxBytes: 2Gi
`))
	fmt.Println(kind.Check(node))

	node, _ = config.ParseNode("config.yaml", []byte(`brokers: [kafka.example.com:9092]
topic: k8s
sasl: {mechanism: plain, user: router, password: s3cret}
`))
	fmt.Println(kind.Check(node).Err())
	fmt.Println(kind.(plugins.Warner).Warn(node))
	// Output:
	// config.yaml:1:11: brokers[0]: must be host:port, as in kafka:9092
	// config.yaml:2:8: topic: is not a topic name: at most 249 letters, digits, dots, - and _, and more than one or two dots
	// config.yaml:3:11: maxBytes: must be at most 256Mi, not 2Gi
	// <nil>
	// config.yaml:3:7: warning: sasl: the password goes to kafka.example.com without encryption, and anyone on the network path can read it: add tls, or use scram-sha-512
}
