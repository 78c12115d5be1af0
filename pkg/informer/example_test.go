package informer_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// printing is a [informer.Downstream] that prints all deltas.
type printing struct{}

// Admit implements [informer.Downstream].
func (printing) Admit(_ context.Context, d *event.Delta) (event.Admission, error) {
	fmt.Println(d.Op, d.Object(), d.Initial)
	return nil, nil //nolint:nilnil // the delta was printed
}

// The deltas of a watch without an API server. With [informer.Config.Client] and
// [informer.Factory.Run] the changes come from a cluster, see examples/embed.
func ExampleNew() {
	pods := index.NewStore()
	factory := informer.New(informer.Config{Downstream: printing{}})
	watch := factory.Watch(informer.Spec{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}, pods, informer.Source{Name: "pods"})
	server, err := watch.Injector("Pod")
	if err != nil {
		panic(err)
	}
	pod := func(version string) string {
		return `{"metadata": {"namespace": "shop", "name": "web-0", "uid": "u", "resourceVersion": "` + version + `"}}`
	}
	ctx := context.Background()
	for _, err := range []error{
		server.List(ctx, []string{pod("1")}, "1"),
		server.Put(ctx, pod("2")),
		server.Delete(ctx, pod("3")),
	} {
		if err != nil {
			panic(err)
		}
	}
	fmt.Println(pods.Len())
	// Output:
	// added shop/web-0 true
	// updated shop/web-0 false
	// deleted shop/web-0 false
	// 0
}
