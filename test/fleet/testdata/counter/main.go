// Command counter is a native plugin for the tests of workers: the type of its event has the number
// of changes of the object so far, and the name of the object if a look-up and the values of with
// have found it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/deltarouter/deltarouter/sdk/process"
)

func main() {
	process.Serve(process.Plugin{Name: "counter", Version: "1.0.0", Setup: setup})
}

func setup(_ context.Context, router *process.Router) (process.Handler, error) {
	return func(ctx context.Context, d process.Delta) ([]process.Event, error) {
		seen, _, err := router.KVGet(ctx, d.Name)
		if err != nil {
			return nil, err
		}
		n, _ := strconv.Atoi(string(seen)) // 0 if there is none yet
		if err := router.KVSet(ctx, d.Name, []byte(strconv.Itoa(n+1)), 0); err != nil {
			return nil, err
		}
		found, err := router.Get(ctx, "maps", d.Namespace, d.Name)
		if err != nil {
			return nil, err
		}
		var object struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		_ = json.Unmarshal(found, &object) // empty: there is none
		var with struct {
			Named []string `json:"named"`
		}
		if err := json.Unmarshal(d.With, &with); err != nil {
			return nil, fmt.Errorf("with: %w", err)
		}
		if !slices.Contains(with.Named, d.Name) {
			return nil, fmt.Errorf("with has %q", with.Named)
		}
		return []process.Event{{Type: fmt.Sprintf("io.deltarouter.%d.%s", n+1, object.Metadata.Name)}}, nil
	}, nil
}
