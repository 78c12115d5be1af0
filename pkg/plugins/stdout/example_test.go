package stdout_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
)

func ExampleKind() {
	e := event.Event{
		ID: "1", Type: "io.deltarouter.updated", Source: "/clusters/prod/sources/pods", Subject: "shop/web-0",
		Time: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Route: "restarts", Data: []byte(`{"restarts":3}`),
	}
	for _, yaml := range []string{"format: text", "format: json"} {
		node, _ := config.ParseNode("config.yaml", []byte(yaml))
		sink, err := stdout.Kind().Open(context.Background(), node, plugins.SinkEnv{Stdout: os.Stdout})
		if err != nil {
			fmt.Println(err)
			return
		}
		sink.Write(context.Background(), []event.Event{e})
	}
	// Output:
	// 09:00:00 updated  pods shop/web-0  restarts  {"restarts":3}
	// {"specversion":"1.0","id":"1","source":"/clusters/prod/sources/pods","type":"io.deltarouter.updated","subject":"shop/web-0","time":"2026-11-20T09:00:00Z","route":"restarts","datacontenttype":"application/json","data":{"restarts":3}}
}
