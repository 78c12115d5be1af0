package wasm_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// TestStopped runs an endless loop, alone and in a batch, while Go's garbage collector wants to run: it has to wait for the guest.
func TestStopped(t *testing.T) {
	handler := newHost().open(t, config(t, guest(forEver(), constant(opI64, 0))))
	for _, n := range []int{1, 7} {
		collected := make(chan time.Duration)
		go func() {
			began := time.Now()
			runtime.GC()
			collected <- time.Since(began)
		}()
		results, err := handler.Handle(t.Context(), plugintest.Deltas(t)[:n])
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the collector took %v", <-collected)
		for _, r := range results {
			if r.Verdict == plugins.OK {
				t.Errorf("got %s: %v", r.Verdict, r.Err)
			}
		}
	}
}

// TestHostile is about guests that want to harm the router: each is stopped, the error says why and names handler and object, and
// another handler works as before.
func TestHostile(t *testing.T) {
	other := newHost().open(t, config(t, guest(constant(opI64, 2))))
	tests := []struct {
		name  string
		guest module
		want  string
	}{
		{"an endless loop", guest(forEver(), constant(opI64, 0)), "limits.fuel"},
		{"an endless recursion", guest(opGet, 0, opGet, 1, opCall, 2), "nested too deeply"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			handler := newHost().open(t, config(t, tt.guest))
			results, err := handler.Handle(context.WithoutCancel(t.Context()), plugintest.Deltas(t))
			if err != nil {
				t.Fatal(err)
			}
			r := results[0]
			if r.Verdict != plugins.Fail || !strings.Contains(fmt.Sprint(r.Err), tt.want) || !strings.HasPrefix(r.Err.Error(), `wasm "enrich": added pods default/a: `) {
				t.Errorf("got %s: %v", r.Verdict, r.Err)
			}
			if got := verdicts(handle(t, other, plugintest.Deltas(t)[:3])); got != "drop drop drop" {
				t.Errorf("the other handler says %s", got)
			}
		})
	}
}
