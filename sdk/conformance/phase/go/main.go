// Command phase reads one field and emits one event, see ../../README.md.
package main

import deltarouter "github.com/deltarouter/deltarouter/sdk/go"

var _ = deltarouter.Handle(phase)

func main() {}

func phase(d deltarouter.Delta) ([]deltarouter.Event, error) {
	return []deltarouter.Event{{Data: map[string]string{"phase": d.Path("status.phase").Text()}}}, nil
}
