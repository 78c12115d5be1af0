package chaos

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// twoClusters returns two clusters with a namespace of the same name. The resourceVersions of the
// second, which is the shared one, are higher. change has the expected events when the second
// replaces the first.
func twoClusters(t *testing.T) (one, two *sandboxtest.Sandbox, ns string, change []string) {
	t.Helper()
	one, two = sandboxtest.Borrow(t), sandboxtest.Start(t)
	ns = one.Namespace(t)
	two.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}\n---\n")
	for name, s := range map[string]*sandboxtest.Sandbox{"one": one, "two": two} {
		maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
		maps.Make(routertest.ConfigMap("both", "1"))
		maps.Make(routertest.ConfigMap("noise", "1"))
		maps.Make(routertest.ConfigMap(name, "1"))
	}
	spend(t, routertest.Use(t, one, routertest.ConfigMaps, ns), "noise", 100)
	ahead := current(t, routertest.Use(t, one, routertest.ConfigMaps, ns)) + 100
	for others := routertest.Use(t, two, routertest.ConfigMaps, ns); current(t, others) < ahead; {
		spend(t, others, "noise", 100)
	}
	return one, two, ns, []string{
		"all deleted " + ns + "/both", "all added " + ns + "/both", "all deleted " + ns + "/one", "all added " + ns + "/two",
	}
}

// lead replaces the kubeconfig in a configuration.
func lead(t *testing.T, file, from, to string) {
	t.Helper()
	config, err := os.ReadFile(file)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(config), from, to)), 0o600))
}

// TestAnotherCluster points the kubeconfig to another cluster. The differences must be delivered:
// objects that exist only in the old cluster are deleted, those that exist only in the new one are
// added.
func TestAnotherCluster(t *testing.T) {
	// Guarantee: history-lost
	t.Parallel()
	one, two, ns, want := twoClusters(t)
	file := routertest.Install(t, one.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns))
	r := routertest.StartFile(t, file)
	r.Expect(t, "all added "+ns+"/both", "all added "+ns+"/one")
	r.Ready(t)
	r.Stop(t)

	lead(t, file, one.Kubeconfig(), two.Kubeconfig())
	r = routertest.StartFile(t, file)
	routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want)
	r.Ready(t)
	r.Stop(t)
	r = routertest.StartFile(t, file)
	r.Ready(t)
	routertest.Use(t, two, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("last", "1"))
	if events := r.Expect(t, "all added "+ns+"/last"); len(events) != 1 {
		t.Errorf("after that: %q", routertest.Summary(events))
	}
}

// TestAnotherClusterLate points to another cluster whose API server does not answer yet when the
// router starts.
func TestAnotherClusterLate(t *testing.T) {
	// Guarantee: history-lost
	t.Parallel()
	one, two, ns, want := twoClusters(t)
	proxy := two.Proxy(t)
	proxy.Refuse()
	file := routertest.Install(t, one.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns))
	r := routertest.StartFile(t, file)
	r.Expect(t, "all added "+ns+"/both", "all added "+ns+"/one")
	r.Ready(t)
	r.Stop(t)

	lead(t, file, one.Kubeconfig(), proxy.Kubeconfig())
	r = routertest.StartFile(t, file)
	r.WaitLog(t, "a complaint", func(log string) bool { return strings.Contains(log, "retrying") })
	proxy.Unblock()
	r.Ready(t)
	routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want)
}

// TestServerExchanged replaces the API server of a running router by that of another cluster. Above
// the effort fast it then switches back to the first one behind a watch that does not break.
func TestServerExchanged(t *testing.T) {
	// Guarantee: server-rewound
	t.Parallel()
	one, two, ns, want := twoClusters(t)
	proxy := one.Scissors(t)
	r := routertest.StartFile(t, routertest.Install(t, proxy.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns)))
	before := []string{"all added " + ns + "/both", "all added " + ns + "/one"}
	r.Expect(t, before...)
	r.Ready(t)
	proxy.Lead(t, two)
	proxy.CloseClientConnections()
	all := append(before, want...)
	routertest.Exactly(t, routertest.Summary(r.Expect(t, all...)), all)
	if n := r.Metric(t, "deltarouter_source_relists_total"); n != 1 {
		t.Errorf("%v relists, want one", n)
	}
	if effort.Current() == effort.Fast {
		return
	}
	proxy.Lead(t, one)
	began, tick := time.Now(), time.Tick(time.Second)
	// longer than the patience of Expect
	for time.Since(began) < 2*time.Minute && len(r.Events()) < len(all)+4 {
		<-tick
	}
	t.Logf("noticed after %v", time.Since(began).Round(time.Second))
	all = append(all, "all deleted "+ns+"/both", "all added "+ns+"/both", "all deleted "+ns+"/two", "all added "+ns+"/one")
	routertest.Exactly(t, routertest.Summary(r.Events()), all)
}
