package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltarouter/deltarouter/test/bench/bare"
)

const (
	own      = "deltarouter"
	bareName = "bare"
	// bareAgain is the time after which the loop starts again, as the container of a pod would.
	bareAgain = time.Second
)

const routerConfig = `version: 1
cluster: {name: peers, kubeconfig: %q}
state: {dir: %q}
listen: {probes: "127.0.0.1:0"}
sources: {objects: {resource: v1/%s, namespaces: [%s]}}
sinks: {out: {webhook: {url: %q, body: event.data}}}
routes:
  - {name: changes, from: objects, to: out, emit: '{"op": op, "name": object.metadata.name, "stamp": object.%s}'}
`

func router() program {
	return program{
		name: own, binaries: []string{"router"}, works: []*work{configMaps(), events()}, parse: parseBrief, version: []string{"version"},
		setUp: func(_ context.Context, p *place) ([]command, error) {
			w := p.work
			config, err := p.write("config.yaml", fmt.Sprintf(routerConfig, p.kubeconfig, p.dir+"/state", w.resource, namespace, p.receiver, w.stamp))
			return []command{{path: p.binary("router"), args: []string{"-config", config}}}, err
		},
	}
}

// bareLoop is the loop of package bare.
func bareLoop() program {
	return program{
		name: bareName, works: []*work{configMaps(), events()}, parse: parseBrief, note: "the loop of test/bench/bare; it starts again after an error",
		setUp: func(_ context.Context, p *place) ([]command, error) {
			self, err := os.Executable()
			return []command{{path: self, args: []string{bareName, p.kubeconfig, p.work.resource, p.receiver}}}, err
		},
	}
}

// runBare is the process of the loop.
func runBare(kubeconfig, resource, receiver string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	loop := bare.Loop{
		Client: client, URL: fmt.Sprintf("%s/api/v1/namespaces/%s/%s", config.Host, namespace, resource), Receiver: receiver, Body: briefOf,
	}
	for {
		fmt.Fprintln(os.Stderr, loop.Run(func() {}, func() {}))
		time.Sleep(bareAgain)
	}
}

// briefOf returns the body for an event of a watch.
func briefOf(line []byte) (any, error) {
	var change struct {
		Type   string `json:"type"`
		Object stated `json:"object"`
	}
	err := json.Unmarshal(line, &change)
	return brief{change.Type, change.Object.Metadata.Name, change.Object.Data.Stamp + change.Object.Message}, err
}

// parseBrief reads the body of the programs that select fields.
func parseBrief(_ http.Header, body []byte) ([]told, error) {
	var b brief
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	if b.Name == "" {
		return nil, oneOf("a name")
	}
	return []told{b.told()}, nil
}
