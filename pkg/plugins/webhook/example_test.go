package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
)

// With `body` the sink posts the result of an expression instead of a CloudEvent.
func ExampleKind() {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s %s %s\n", r.Method, r.Header.Get("Content-Type"), body)
	}))
	defer receiver.Close()

	yaml := fmt.Sprintf("url: %s\nbody: '{\"text\": event.subject + \" restarted\"}'\n", receiver.URL)
	node, _ := config.ParseNode("config.yaml", []byte(yaml))
	sink, err := webhook.Kind().Open(context.Background(), node, plugins.SinkEnv{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(context.Background())
	fmt.Println(sink.Write(context.Background(), []event.Event{{
		ID: "1", Type: "restarted", Source: "/clusters/prod/sources/pods", Subject: "shop/web-0", Data: []byte("{}"),
	}}))
	// Output:
	// POST application/json {"text":"shop/web-0 restarted"}
	// []
}
