package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestAnotherClusterLate: another cluster than before, and its API server is not there yet when the router starts.
func TestAnotherClusterLate(t *testing.T) {
	one, two := sandboxtest.New(t, sandboxtest.Options{}), sandboxtest.New(t, sandboxtest.Options{})
	ns := one.Namespace(t)
	two.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}\n---\n")
	for _, s := range []*sandboxtest.Sandbox{one, two} {
		maps := use(t, s, configMaps, ns)
		maps.create(configMap("both", "1"))
		maps.create(configMap("noise", "1"))
	}
	use(t, two, configMaps, ns).create(configMap("two", "1"))
	use(t, one, configMaps, ns).create(configMap("one", "1"))
	spend(t, use(t, one, configMaps, ns), "noise", 100)
	spend(t, use(t, two, configMaps, ns), "noise", 200) // its resourceVersions are higher
	proxy := two.Proxy(t)
	proxy.Refuse()
	file := install(t, one.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns))
	r := startFile(t, file)
	r.expect(t, "all added "+ns+"/both", "all added "+ns+"/one")
	r.ready(t)
	r.stop(t)

	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(config), one.Kubeconfig(), proxy.Kubeconfig())), 0o600); err != nil {
		t.Fatal(err)
	}
	r = startFile(t, file)
	r.wait(t, "a complaint", func() bool { return strings.Contains(r.stderr.String(), "trying again") })
	proxy.Unblock()
	r.ready(t)
	want := []string{"all deleted " + ns + "/both", "all added " + ns + "/both", "all deleted " + ns + "/one", "all added " + ns + "/two"}
	exactly(t, summary(r.expect(t, want...)), want)
}
