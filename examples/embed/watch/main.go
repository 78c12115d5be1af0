// Command watch uses the informer of deltarouter alone: it watches the pods of a cluster, finds
// them by an index, and prints the changes that match a filter. Index and filter are CEL.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// printer prints the deltas that match a filter, and the number of pods on the same node.
type printer struct {
	filter filters.Filter
	pods   *index.Catalog
}

// Admit implements [informer.Downstream]. It may block; the watch waits meanwhile.
func (p *printer) Admit(ctx context.Context, d *event.Delta) (event.Admission, error) {
	ok, err := p.filter.Match(ctx, d)
	if err != nil || !ok {
		return nil, nil //nolint:nilerr // an expression that fails on an object does not match it
	}
	return &printed{p, d}, nil
}

// printed is a delta that the cache is about to have.
type printed struct {
	*printer
	delta *event.Delta
}

// Commit implements [event.Admission]. It is called when the cache has the delta.
func (p *printed) Commit() {
	node := p.delta.Object().Raw().Path("spec", "nodeName").Str()
	fmt.Println(p.delta.Op, p.delta.Object(), "on", node, "with", p.pods.Count("pods", "byNode", node), "pods")
}

func main() {
	filter, err := filters.Compile(`has(object.spec.nodeName) && object.metadata.namespace != "kube-system"`)
	check(err)
	byNode, err := index.Compile(`object.spec.nodeName`)
	check(err)
	client, err := informer.NewClient(config.Cluster{}, config.Policy{}) // $KUBECONFIG, as kubectl
	check(err)

	store, pods := index.NewStore(byNode), index.NewCatalog()
	pods.Add("pods", []*index.Store{store}, map[string]index.Spec{"byNode": byNode})
	f := informer.New(informer.Config{Client: client, Downstream: &printer{filter, pods}})
	f.Watch(informer.Spec{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}, store, informer.Source{Name: "pods"})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	f.Run(ctx)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
