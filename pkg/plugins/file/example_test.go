package file_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/file"
)

func ExampleKind() {
	folder, err := os.MkdirTemp("", "file")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "events.jsonl")

	node, _ := config.ParseNode("config.yaml", fmt.Appendf(nil, "path: %s\n", path))
	env := plugins.SinkEnv{Env: plugins.Env{Log: slog.New(slog.DiscardHandler)}}
	sink, err := file.Kind().Open(context.Background(), node, env)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sink.Write(context.Background(), []event.Event{{
		ID: "1", Type: "restarted", Source: "/clusters/prod/sources/pods", Subject: "shop/web-0", Data: []byte(`{"restarts":3}`),
	}}))
	fmt.Println(sink.Close(context.Background()))
	text, err := os.ReadFile(path)
	fmt.Printf("%s%v\n", text, err)
	// Output:
	// []
	// <nil>
	// {"specversion":"1.0","id":"1","source":"/clusters/prod/sources/pods","type":"restarted","subject":"shop/web-0","datacontenttype":"application/json","data":{"restarts":3}}
	// <nil>
}
