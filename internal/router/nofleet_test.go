package router_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestNoFleet: a router without the section `fleet` has no goroutine in code of fleets, and none of
// the client of NATS.
func TestNoFleet(t *testing.T) {
	config := fmt.Sprintf(reloadable, "test", kubeconfig(t)) + fmt.Sprintf(`state: {dir: %q}
sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {}}}
routes: [{name: a, from: pods, to: one}]
`, t.TempDir())
	startReloading(t, config)
	stacks := make([]byte, 1<<20)
	all := strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n")
	seen := false
	for _, stack := range all {
		seen = seen || strings.Contains(stack, "/internal/router.Run(")
		for _, of := range []string{"/internal/fleet", "nats-io/", "internal/router.(*member)", "internal/router.(*term)", "internal/router.runMember"} {
			if strings.Contains(stack, of) {
				t.Errorf("a goroutine of %s:\n%s", of, stack)
			}
		}
	}
	if !seen {
		t.Errorf("the goroutines of the router are missing among %d", len(all))
	}
}
