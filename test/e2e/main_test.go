// Package e2e runs the router's binary on the sandbox's real API server, the way a user does: a
// configuration file, objects that change, and what comes out on standard output.
package e2e

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
)

func TestMain(m *testing.M) { routertest.Main(m) }
