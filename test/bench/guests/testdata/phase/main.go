// Command phase is a handler of the kind wasm that makes an event of the phase of a pod.
package main

import (
	"encoding/json"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

var _ = deltarouter.Handle(handle)

func main() {}

func handle(d deltarouter.Delta) ([]deltarouter.Event, error) {
	phase := json.RawMessage(d.Path("status.phase"))
	return []deltarouter.Event{{Data: map[string]any{"pod": d.Name, "phase": phase}}}, nil
}
