package otlp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/otlp"
)

// The sink sends each event as a log record to a collector. A refusal of the collector is the error
// of each event.
func ExampleKind() {
	status := http.StatusOK
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Content-Type"))
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(status)
	}))
	defer collector.Close()

	node, _ := config.ParseNode("config.yaml", fmt.Appendf(nil, "endpoint: %s\nprotocol: http\n", collector.URL))
	sink, err := otlp.Kind().Open(context.Background(), node, plugins.SinkEnv{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(context.Background())
	events := []event.Event{{ID: "1", Type: "restarted", Source: "/clusters/prod/sources/pods", Subject: "shop/web-0", Data: []byte("{}")}}
	fmt.Println(sink.Write(context.Background(), events))
	status = http.StatusBadRequest
	errs := sink.Write(context.Background(), events)
	fmt.Println(plugins.Category(errs[0]), plugins.ClassOf(errs[0]) == plugins.Rejected)
	// Output:
	// POST /v1/logs application/x-protobuf
	// []
	// POST /v1/logs application/x-protobuf
	// answered 400 Bad Request true
}
