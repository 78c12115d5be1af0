package discard_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
)

// The sink delivers nothing. At its end it logs how many events it got.
func ExampleKind() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	node, _ := config.ParseNode("config.yaml", []byte("{}\n"))
	sink, err := discard.Kind().Open(context.Background(), node, plugins.SinkEnv{Env: plugins.Env{Log: log}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sink.Write(context.Background(), []event.Event{{ID: "1"}, {ID: "2"}}))
	fmt.Println(sink.Close(context.Background()))
	// Output:
	// []
	// level=INFO msg="events discarded" count=2
	// <nil>
}
