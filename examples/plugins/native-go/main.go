// Command native-go is a native plugin: it reports with each change the number of changes in that
// namespace so far, and keeps this number across restarts.
package main

import (
	"context"
	"strconv"

	"github.com/deltarouter/deltarouter/sdk/process"
)

func main() {
	process.Serve(process.Plugin{Name: "native-go", Version: "1.0.0", Schema: schema, Setup: setup})
}

// schema lets the router report the position of a mistake in its file.
const schema = `{"type": "object", "additionalProperties": false, "properties": {"prefix": {"type": "string"}}}`

func setup(_ context.Context, router *process.Router) (process.Handler, error) {
	cfg := struct{ Prefix string }{Prefix: "changes/"}
	if err := router.Config(&cfg); err != nil {
		return nil, err
	}
	return func(ctx context.Context, d process.Delta) ([]process.Event, error) {
		seen, _, err := router.KVGet(ctx, cfg.Prefix+d.Namespace)
		if err != nil {
			return nil, err
		}
		n, _ := strconv.Atoi(string(seen)) // 0 if there is none yet
		if err := router.KVSet(ctx, cfg.Prefix+d.Namespace, []byte(strconv.Itoa(n+1)), 0); err != nil {
			return nil, err
		}
		return []process.Event{{Data: map[string]any{"change": d.String(), "number": n + 1}}}, nil
	}, nil
}
