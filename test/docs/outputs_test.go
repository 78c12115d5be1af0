package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
)

// TestFailedCase: the difference that docs/TESTING.md shows is that of its case, with another node.
func TestFailedCase(t *testing.T) {
	t.Parallel()
	text := readDoc(t, "TESTING.md")
	cases := regexp.MustCompile("(?ms)^```yaml\n(config: .*?)^```$").FindStringSubmatch(text)
	shown := regexp.MustCompile(`(?m)^    --- FAIL: .*\n(    .*\n)*`).FindString(text)
	if cases == nil || shown == "" {
		t.Fatal("docs/TESTING.md has no case, or no difference")
	}
	const config = `version: 1
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
routes:
  - name: crash-loops
    from: pods
    ops: updated
    filter: object.status.?containerStatuses.orValue([]).exists(c, c.?state.waiting.reason.orValue("") == "CrashLoopBackOff")
    emit: '{"pod": object.metadata.name, "node": object.spec.?nodeName.orValue("")}'
    to: out
`
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600))
	for i, c := range []struct{ cases, want string }{
		{cases[1], "ok   config_test.yaml 1 case 0.0s\n"},
		{
			strings.Replace(cases[1], "pod: web-0, node: n1", "pod: web-0, node: n2", 1),
			regexp.MustCompile(`(?m)^    `).ReplaceAllString(shown, "") + "FAIL config_test.yaml 1 case, 1 failed 0.0s\n",
		},
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "config_test.yaml"), []byte(c.cases), 0o600))
		test := routertest.Command("test")
		test.Dir = dir
		out, _ := test.CombinedOutput() // the exit code is 1 where a case fails
		if !same(string(out), c.want) {
			t.Errorf("%d: router test prints\n%swant\n%s", i, out, c.want)
		}
	}
}

// TestMessagesOfCEL: router check still words its findings as docs/CEL.md quotes them.
func TestMessagesOfCEL(t *testing.T) {
	t.Parallel()
	filters := []string{
		`object.spec.podCIDRS == []`,
		`object.spec.nodeName == "n1"`,
		`list("nodes").exists(n, object.spec.containers.exists(c, c.name == n.metadata.name))`,
	}
	quotes := regexp.MustCompile(`(?m)^    config\.yaml:.*?routes\[\d\]\.filter: (.*(?:\n    \S.*)*)$`).FindAllStringSubmatch(readDoc(t, "CEL.md"), -1)
	if len(quotes) != len(filters) {
		t.Fatalf("docs/CEL.md quotes %d messages, want %d", len(quotes), len(filters))
	}
	for i, source := range []string{"nodes", "pods", "pods"} {
		config := "version: 1\nsources: {pods: {resource: v1/pods}, nodes: {resource: v1/nodes}}\nsinks: {out: {stdout: {}}}\n" +
			"routes: [{name: r, from: " + source + ", to: out, filter: '" + filters[i] + "'}]\n"
		file := filepath.Join(t.TempDir(), "config.yaml")
		must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
		out, _ := routertest.Command("check", file).CombinedOutput() // the exit code is 2 for the mistake
		want := strings.Join(strings.Fields(quotes[i][1]), " ")
		if !strings.Contains(string(out), want) {
			t.Errorf("docs/CEL.md quotes\n%s\nrouter check prints\n%s", want, out)
		}
	}
}
