package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// printConfig is the configuration of the kind `print`.
type printConfig struct {
	Prefix string `yaml:"prefix" default:"event" doc:"The text before each event."`
}

// printer is a sink that prints the subject of each event.
type printer struct{ prefix string }

func (p printer) Write(_ context.Context, events []event.Event) []error {
	for i := range events {
		fmt.Println(p.prefix, events[i].Subject)
	}
	return nil
}

func (p printer) Close(context.Context) error { return nil }

// A kind of sink is a definition and a function that opens a sink. The definition decodes and
// checks the configuration.
func ExampleSinkDefinition() {
	kind := plugins.SinkDefinition[printConfig]{
		Definition: plugins.Definition[printConfig]{Name: "print", Doc: "Prints subjects.", Example: "prefix: got\n"},
		New: func(_ context.Context, c printConfig, _ plugins.SinkEnv) (plugins.Sink, error) {
			return printer{c.Prefix}, nil
		},
	}

	node, _ := config.ParseNode("config.yaml", []byte("prefix: got\n"))
	sink, err := kind.Open(context.Background(), node, plugins.SinkEnv{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sink.Write(context.Background(), []event.Event{{Subject: "shop/web-0"}}))

	node, _ = config.ParseNode("config.yaml", []byte("prefixx: got\n"))
	fmt.Println(kind.Check(node))
	// Output:
	// got shop/web-0
	// []
	// config.yaml:1:1: prefixx: unknown key; did you mean "prefix"?
}

// namer is a handler that makes an event of the name of each object.
type namer struct{}

func (namer) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		results[i].Events = []plugins.Emit{{Data: []byte(strconv.Quote(d.Object().Key().Name))}}
	}
	return results, nil
}

func (namer) Close(context.Context) error { return nil }

// A kind of handler is a definition and a function that opens a handler.
func ExampleHandlerDefinition() {
	kind := plugins.HandlerDefinition[struct{}]{
		Definition: plugins.Definition[struct{}]{Name: "namer", Doc: "Makes events of names.", Example: "{}\n"},
		New:        func(context.Context, struct{}, plugins.HandlerEnv) (plugins.Handler, error) { return namer{}, nil },
	}
	node, _ := config.ParseNode("config.yaml", []byte("{}\n"))
	handler, err := kind.Open(context.Background(), node, plugins.HandlerEnv{})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod, _ := event.ParseObject(&event.Resource{Kind: "Pod"}, `{"metadata": {"name": "web-0"}}`)
	results, err := handler.Handle(context.Background(), []*event.Delta{{Op: event.Added, New: pod}})
	fmt.Println(string(results[0].Events[0].Data), err)
	// Output: "web-0" <nil>
}

// The class of an error decides the next step of the router. The outermost mark counts.
func ExampleClassOf() {
	err := errors.New("status 400")
	fmt.Println(plugins.ClassOf(err) == plugins.Failed)
	fmt.Println(plugins.ClassOf(plugins.Reject(err)) == plugins.Rejected)
	fmt.Println(plugins.ClassOf(plugins.Postpone(plugins.Reject(err), time.Second)) == plugins.Postponed)
	// Output:
	// true
	// true
	// true
}

// A sink passes the Retry-After header of a response on.
func ExampleRetryLater() {
	err := plugins.RetryLater(errors.New("status 503"), 30*time.Second)
	fmt.Println(err, plugins.ClassOf(err) == plugins.Failed, plugins.RetryAfter(err))
	// Output: status 503 true 30s
}

// The explanation of the receiver is kept with a dead letter. The text of the error, which is
// logged, does not contain it.
func ExampleWithResponse() {
	err := plugins.Reject(plugins.WithResponse(errors.New("status 422"), "name: web-0 is too short"))
	fmt.Println(err)
	fmt.Println(plugins.ResponseOf(err))
	// Output:
	// status 422
	// name: web-0 is too short
}

// seriesMap has the sum of each series. In the router the metrics of docs/METRICS.md are in its
// place.
type seriesMap map[string]float64

func (f seriesMap) Count(metric string, labels ...string) plugins.Counter {
	return counter(func(n float64) { f[fmt.Sprint(metric, labels)] += n })
}

// counter is a function that implements [plugins.Counter].
type counter func(n float64)

func (c counter) Add(n float64) { c(n) }

// A handler looks its series up when it is opened.
func ExampleEnv_Count() {
	series := seriesMap{}
	env := plugins.Env{Name: "enrich", Metrics: series}
	fuel := env.Count(plugins.GuestFuel)
	fuel.Add(1200)
	fuel.Add(300)
	env.Count(plugins.GuestsEnded, "trap").Add(1)
	fmt.Println(series)
	// Output: map[guest_fuel_total[enrich]:1500 guests_ended_total[enrich trap]:1]
}
