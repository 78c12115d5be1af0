// Command guest performs the action in the name of an object. The tests of the host build it with
// the SDK.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

var _ = deltarouter.Setup(setup)

func main() {}

var config struct {
	Refuse string `json:"refuse"`
	Answer any    `json:"answer"`
}

func setup() (deltarouter.Handler, error) {
	if err := deltarouter.Config(&config); err != nil {
		return nil, err
	}
	if config.Refuse == "panic" {
		panic("no way")
	}
	if config.Refuse != "" {
		return nil, errors.New(config.Refuse)
	}
	return handle, nil
}

func handle(d deltarouter.Delta) ([]deltarouter.Event, error) {
	switch d.Name {
	case "echo":
		return echo(d), nil
	case "parse":
		var pod map[string]any
		return nil, json.Unmarshal(d.Object, &pod)
	case "config":
		return []deltarouter.Event{{Data: config.Answer}}, nil
	case "fail":
		return nil, errors.New("as you wish")
	case "retry":
		return nil, fmt.Errorf("wrapped: %w", deltarouter.Retry(errors.New("later"), 90*time.Second))
	case "drop":
		return nil, deltarouter.ErrDrop
	case "panic":
		var m map[string]int
		m["a"] = 1
	case "exit":
		os.Exit(7)
	case "fatal":
		for b := []byte("x"); ; b = append(b, b...) {
		}
	case "raw":
		return []deltarouter.Event{{Data: []byte(`{"raw": [1, "<"]}`)}, {Data: json.RawMessage(`{}`)}}, nil
	case "invalid":
		return []deltarouter.Event{{Data: 1}, {Data: []byte(`{"raw"`)}}, nil
	case "files":
		_, err := os.ReadDir("/")
		return []deltarouter.Event{{Data: map[string]any{"error": err != nil, "env": os.Environ(), "args": os.Args}}}, nil
	case "time":
		start := time.Now()
		time.Sleep(time.Hour) // does not wait
		return []deltarouter.Event{{Data: []any{start.UTC(), time.Since(start).Round(time.Hour).String()}}}, nil
	case "log":
		slog.Debug("quiet")
		slog.With("n", 1).WithGroup("g").Warn("something is odd", "k", "v w")
		fmt.Println("printed")
	case "long":
		return nil, errors.New(strings.Repeat("x", 10_000))
	}
	return nil, nil
}

func echo(d deltarouter.Delta) []deltarouter.Event {
	return []deltarouter.Event{{Type: "echo", Subject: d.String(), Data: map[string]any{
		"op": d.Op.String(), "source": d.Source, "cluster": d.Cluster, "resource": d.Resource, "kind": d.Kind,
		"namespace": d.Namespace, "name": d.Name, "uid": d.UID, "resourceVersion": d.ResourceVersion,
		"object": json.RawMessage(d.Object), "oldObject": string(d.OldObject),
		"initial": d.Initial, "stale": d.Stale, "redelivered": d.Redelivered, "seen": d.Seen,
		"since": d.Since, "late": d.Late, "repeat": d.Repeat, "suppressed": d.Suppressed, "event": made(d.Event),
		"traceParent": d.TraceParent, "with": string(d.With),
	}}}
}

func made(e *deltarouter.RouteEvent) any {
	if e == nil {
		return nil
	}
	return map[string]any{"id": e.ID, "type": e.Type, "source": e.Source, "subject": e.Subject, "route": e.Route, "time": e.Time, "data": json.RawMessage(e.Data)}
}
