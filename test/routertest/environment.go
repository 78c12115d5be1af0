package routertest

import (
	"maps"
	"os"
	"sync"
	"testing"
)

// environments has the variables of Setenv by test. It has to be a variable: the calls of a test
// share nothing else.
var environments struct { //nolint:gochecknoglobals // see above
	sync.Mutex

	of map[*testing.T]map[string]string
}

// Setenv sets an environment variable of the routers that this test starts. Unlike that of
// [testing.T.Setenv], it is none of the routers of parallel tests.
func Setenv(t *testing.T, name, value string) {
	t.Helper()
	environments.Lock()
	defer environments.Unlock()
	if environments.of == nil {
		environments.of = make(map[*testing.T]map[string]string)
	}
	if environments.of[t] == nil {
		environments.of[t] = make(map[string]string)
		t.Cleanup(func() {
			environments.Lock()
			defer environments.Unlock()
			delete(environments.of, t)
		})
	}
	environments.of[t][name] = value
}

// Environ returns the environment of this process with the variables of Setenv.
func Environ(t *testing.T) []string {
	t.Helper()
	environments.Lock()
	defer environments.Unlock()
	all := os.Environ()
	for name, value := range maps.All(environments.of[t]) {
		all = append(all, name+"="+value)
	}
	return all
}
