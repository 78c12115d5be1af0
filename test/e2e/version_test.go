package e2e

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// kubernetesVersion returns the version of Kubernetes in a go.mod file of the sandbox, as 1.30.14.
func kubernetesVersion(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("../../tools/sandbox/" + file)
	must.Succeed(t, err)
	match := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes v(1\.\d+\.\d+)$`).FindSubmatch(text)
	if match == nil {
		t.Fatalf("%s does not name the version of k8s.io/kubernetes", file)
	}
	return string(match[1])
}

// TestSupportedVersions compares the table of the supported versions with the files that the two
// sandboxes are built from.
func TestSupportedVersions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	must.Succeed(t, err)
	out, err := routertest.Command("version", "-o", "json").Output()
	must.Succeed(t, err)
	var router struct{ Kubernetes string }
	must.Succeed(t, json.Unmarshal(out, &router))
	for _, row := range []string{
		fmt.Sprintf("| newest tested API server | %s |", kubernetesVersion(t, "go.mod")),
		fmt.Sprintf("| oldest tested API server | %s |", kubernetesVersion(t, "oldest.mod")),
		fmt.Sprintf("| Kubernetes' libraries in the router | %s |", strings.TrimPrefix(router.Kubernetes, "v")),
	} {
		if !strings.Contains(string(text), "\n"+row) {
			t.Errorf("docs/OPERATIONS.md has no row %s", row)
		}
	}
}

// TestFirstList checks that these tests run on the version that they are meant for, and how the
// router reads existing objects there: Kubernetes 1.32 and later streams them, older versions
// refuse that and are asked for a list.
func TestFirstList(t *testing.T) {
	t.Parallel()
	file, streams := "go.mod", true
	if os.Getenv("SANDBOX") != "" {
		file, streams = "oldest.mod", false
	}
	s, ns := sandboxtest.StartNamespace(t)
	built, err := buildinfo.ReadFile(sandboxtest.Binary(t))
	must.Succeed(t, err)
	want := "v" + kubernetesVersion(t, file)
	if !slices.ContainsFunc(built.Deps, func(m *debug.Module) bool { return m.Path == "k8s.io/kubernetes" && m.Version == want }) {
		t.Fatalf("the sandbox does not contain Kubernetes %s of tools/sandbox/%s: make e2e KUBERNETES=oldest", want, file)
	}

	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("a", "1"))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.Ready(t)
	maps.Make(routertest.ConfigMap("b", "1"))
	r.Expect(t, "all added "+ns+"/b")
	listed, streamed := false, false
	for _, q := range s.Requests(t, func(q sandboxtest.Request) bool { return q.Namespace == ns && q.Resource == "configmaps" }) {
		listed = listed || q.Verb == "list" && !strings.HasSuffix(q.URI, "?limit=1") // that is a probe
		streamed = streamed || q.Verb == "watch" && q.Code == 200 && strings.Contains(q.URI, "sendInitialEvents=true")
	}
	if listed == streamed || streamed != streams {
		t.Errorf("listed %t, streamed %t, want streamed %t", listed, streamed, streams)
	}
}
