package nats_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
)

// Check finds mistakes, and Warn finds valid settings that are probably wrong. Neither connects to
// a server.
func ExampleKind() {
	kind := nats.Kind()
	node, _ := config.ParseNode("config.yaml", []byte(`servers: [nats.example.com]
subject: k8s.{source}.{pod}
stream: {create: true}
`))
	fmt.Println(kind.Check(node))

	node, _ = config.ParseNode("config.yaml", []byte(`servers: ["nats://nats.example.com:4222"]
auth: {token: s3cret}
`))
	fmt.Println(kind.Check(node).Err())
	fmt.Println(kind.(plugins.Warner).Warn(node))
	// Output:
	// config.yaml:1:11: servers[0]: must be like nats://host:4222 or tls://host:4222
	// config.yaml:2:10: subject: there is no {pod}; there are: cluster, kind, name, namespace, op, route, source, type
	// config.yaml:3:18: stream.create: needs the stream's name
	// <nil>
	// config.yaml:1:11: warning: servers[0]: the token or password goes to nats.example.com without encryption, and anyone on the network path can read it: write tls://
}
