package sandboxtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

func TestSumMetric(t *testing.T) {
	const text = `# HELP requests_total help
requests_total{code="200",resource="pods",verb="LIST"} 3
requests_total{code="410",resource="pods",verb="LIST"} 1e+00
requests_total{code="200",resource="pods",subresource="pods",verb="WATCH"} 5
requests_total{code="200",resource="nodes",verb="LIST"} 7
requests_total_more{resource="pods",verb="LIST"} 100
plain 2
`
	for _, test := range []struct {
		name   string
		labels map[string]string
		want   float64
	}{
		{"requests_total", map[string]string{"verb": "LIST", "resource": "pods"}, 4},
		{"requests_total", map[string]string{"resource": "pods"}, 9},
		{"requests_total", nil, 16},
		{"requests_total", map[string]string{"verb": "GET"}, 0},
		{"plain", nil, 2},
	} {
		got, err := sumMetric(strings.NewReader(text), test.name, test.labels)
		if err != nil || got != test.want {
			t.Errorf("%s%v: got %v, %v, want %v", test.name, test.labels, got, err, test.want)
		}
	}
}

func TestNamespaceName(t *testing.T) {
	valid := regexp.MustCompile("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
	for _, name := range []string{"TestX", "TestX/sub_test=1#02", strings.Repeat("Test", 50), "Test" + strings.Repeat("x", 45) + "//y"} {
		got := namespaceName(name)
		if !valid.MatchString(got) || len(got) > 63 || got == namespaceName(name) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestIsStale(t *testing.T) {
	dir := t.TempDir()
	bin, sources := filepath.Join(dir, "bin"), filepath.Join(dir, "src")
	must.Succeed(t, os.Mkdir(sources, 0o755))
	now := time.Now()
	touch := func(path string, at time.Time) {
		must.Succeed(t, os.WriteFile(path, nil, 0o600))
		must.Succeed(t, os.Chtimes(path, at, at))
	}
	check := func(what string, want bool) {
		if got, err := isStale(bin, sources); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
	}
	check("no binary", true)
	touch(bin, now)
	touch(filepath.Join(sources, "main.go"), now.Add(-time.Hour))
	check("older sources", false)
	touch(filepath.Join(sources, "main_test.go"), now.Add(time.Hour))
	check("a newer test", false)
	touch(filepath.Join(sources, "go.sum"), now.Add(time.Hour))
	check("a newer go.sum", true)
}

// TestGate: a test inside starts more sandboxes without waiting, and its place is free when the
// last of them has ended.
func TestGate(t *testing.T) {
	g := gate{free: make(chan struct{}, 1), held: map[string]int{}}
	t.Run("inside", func(t *testing.T) {
		g.admit(t)
		g.admit(t)
		t.Run("below", func(t *testing.T) { g.admit(t) })
		if len(g.free) != 1 {
			t.Errorf("%d places are taken, want one", len(g.free))
		}
	})
	if len(g.free) != 0 || len(g.held) != 0 {
		t.Errorf("%d places are taken after the test, by %v", len(g.free), g.held)
	}
}
