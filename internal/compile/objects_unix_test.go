//go:build unix

package compile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/must"
)

// BenchmarkObjects measures a plan with 500 routes that are objects: the cost of each change of one
// of them.
func BenchmarkObjects(b *testing.B) {
	const many = 500
	path := filepath.Join(b.TempDir(), "config.yaml")
	must.Succeed(b, os.WriteFile(path, []byte(`
version: 1
sources: {maps: {resource: v1/configmaps}}
sinks: {out: {stdout: {}}}
customResources: {routes: {namespaces: ["*"], sources: [maps], sinks: [out]}}
`), 0o600))
	alone := func(config.Cluster) (*informer.Client, error) { return nil, errors.New("there is no cluster") }
	before := cpuTime(b)
	for b.Loop() {
		in := compile.Input{Path: path, Tolerant: true}
		for i := range many {
			in.Fragments = append(in.Fragments, &config.Fragment{
				Name: fmt.Sprintf("route/r%d -n ns", i), Object: &config.ObjectRef{Namespace: "ns", Name: fmt.Sprint("r", i)},
				Data: fmt.Appendf(nil, "metadata: {name: r%d, namespace: ns}\nspec: {from: [maps], filter: object.metadata.name == \"late\", emit: '{\"n\": object.metadata.name}', to: [out]}\n", i),
			})
		}
		p, problems := (*compile.Plans)(nil).Make(b.Context(), in, compile.Components{Sinks: []plugins.SinkKind{stdout.Kind()}}, alone)
		if len(problems) > 0 || len(p.Routes) != many {
			b.Fatal(problems, p.Mistakes())
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
}

// cpuTime returns the CPU time of the process so far, which other processes do not prolong.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
