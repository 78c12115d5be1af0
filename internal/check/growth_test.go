package check_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/check"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestChecksGrowWithTheConfiguration shows that the work of a check grows with the number of
// sources and routes, not with its square: eight times as many allocate less than ten times as
// much.
func TestChecksGrowWithTheConfiguration(t *testing.T) {
	allocated := func(n int) uint64 {
		var sources, routes strings.Builder
		for i := range n {
			fmt.Fprintf(&sources, "  s%d: {resource: v1/configmaps, labelSelector: n=%d}\n", i, i)
			fmt.Fprintf(&routes, "  - {name: r%d, from: s%d, to: out}\n", i, i)
		}
		file := filepath.Join(t.TempDir(), "config.yaml")
		text := "version: 1\nsources:\n" + sources.String() + "sinks: {out: {stdout: {}}}\nroutes:\n" + routes.String()
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		found := check.File(t.Context(), file, compile.Components{Sinks: []plugins.SinkKind{stdout.Kind()}}, check.Options{})
		runtime.ReadMemStats(&after)
		if len(found.Problems) > 0 {
			t.Fatal(found.Problems)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	allocated(10) // makes the data that all checks share
	few, many := allocated(150), allocated(1200)
	if t.Logf("%d and %d bytes", few, many); many > 10*few {
		t.Errorf("150 sources allocate %d bytes, and 1200 %d", few, many)
	}
}
