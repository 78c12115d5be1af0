// Package e2e runs the router's binary on the sandbox's real API server like a user: with a
// configuration file, objects that change, and events on standard output.
package e2e

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
)

func TestMain(m *testing.M) { routertest.Main(m) }
