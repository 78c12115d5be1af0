package compile

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// TestGivenOpsOfForks does not end if each path to a route is visited: there are 2^60.
func TestGivenOpsOfForks(t *testing.T) {
	cfg := &config.Config{Routes: []*config.Route{{Name: "a0", Ops: []string{"added"}}, {Name: "b0", Ops: []string{"removed"}}}}
	var last *config.Route
	for i := 1; i <= 60; i++ {
		for _, name := range []string{"a", "b"} {
			last = &config.Route{
				Name: fmt.Sprint(name, i), Ops: []string{"added"},
				Upstream: []string{fmt.Sprint("a", i-1), fmt.Sprint("b", i-1)},
			}
			cfg.Routes = append(cfg.Routes, last)
		}
	}
	if given := newGivenOps(cfg).of(last); !given["added"] || given["removed"] {
		t.Errorf("got %v", given)
	}
}
