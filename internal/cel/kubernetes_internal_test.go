package cel

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/cel/library"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestAllKubernetesLibraries: all libraries of the API server of this version are available, except
// for authorization and the libraries of mutation policies.
func TestAllKubernetesLibraries(t *testing.T) {
	env, err := NewEnv(EnvConfig{})
	must.Succeed(t, err)
	known := library.KnownLibraries()
	for _, l := range known {
		name := l.LibraryName()
		if strings.Contains(name, "authz") || strings.Contains(name, "jsonpatch") {
			continue
		}
		if !env.checker.Scope("").CEL.HasLibrary(name) {
			t.Errorf("there is no %s", name)
		}
	}
	if len(known) < 8 {
		t.Errorf("only %d libraries are known", len(known))
	}
}
