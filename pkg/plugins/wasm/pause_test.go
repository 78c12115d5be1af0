package wasm_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
)

// TestGuestsPause: Go's garbage collector stops all that runs, several times in a cycle. It comes to its end while a guest is within one
// call that goes on for ever, as far as its fuel goes; it need not wait for the call's end.
func TestGuestsPause(t *testing.T) {
	endless := map[string]module{
		"a loop": guest(opLoop, empty, opBr, 0, opEnd, constant(opI64, 0)),
		"calls":  {},
	}
	calls := guest(opCall, 3, constant(opI64, 0)) // each level calls the next one twice
	for i := range 40 {
		calls.funcs = append(calls.funcs, function{body: code(opCall, uleb(4+i), opCall, uleb(4+i))})
	}
	calls.funcs = append(calls.funcs, function{})
	endless["calls"] = calls
	for name, m := range endless {
		t.Run(name, func(t *testing.T) {
			node := plugintest.Node(t, "{module: "+m.write(t)+", limits: {fuel: 2G, calls: 1}}")
			handler, err := wasm.Factory().Open(t.Context(), node, newHost().env)
			if err != nil {
				t.Fatal(err)
			}
			defer handler.Close(t.Context())
			var running sync.WaitGroup
			began, ended := make(chan struct{}), make(chan struct{})
			running.Go(func() {
				close(began)
				results, err := handler.Handle(t.Context(), plugintest.Deltas(t)[:1])
				close(ended)
				if err != nil || results[0].Verdict != plugins.Fail {
					t.Errorf("the guest came to an end: %v", err)
				}
			})
			<-began
			cycles := 0
			for during := true; during; {
				runtime.GC()
				select {
				case <-ended:
					during = false
				default:
					cycles++
				}
			}
			running.Wait()
			// One may have been done before the guest was called.
			if cycles < 3 {
				t.Errorf("the collector came to its end %d times while the guest ran", cycles)
			}
		})
	}
}
