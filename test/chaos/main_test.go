// Package chaos runs the router's binary on the sandbox, and kills, cuts off, damages and fills up what it depends on. In the environment,
// CHAOS=20 makes the tests that many times as long, as `make chaos` does.
package chaos

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
)

func TestMain(m *testing.M) { routertest.Main(m) }
