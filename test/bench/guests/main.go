// Command guests measures the cost of guests: a call of a handler beside a bare call, the metering
// of instructions beside other ways to stop a guest, the time until an endless loop is stopped, the
// time for which a hostile guest can stop the whole process, the start of a guest, and the same
// handler in several kinds.
//
//	go -C test/bench run ./guests [-rounds ROUNDS] [-only calls|meters|loops|pauses|start|kinds]
//
// The contenders take turns, and the medians of the rounds are compared. The ratios are
// significant: other load on the machine affects both sides.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// parts are the measurements in their order.
var parts = []struct {
	name string
	run  func(ctx context.Context, out *report.Report, dir string, rounds int) error
}{{"calls", compareCalls}, {"meters", compareMeters}, {"loops", stopLoops}, {"pauses", comparePauses}, {"start", startGuests}, {"kinds", compareKinds}}

func main() {
	rounds := flag.Int("rounds", 7, "how often to measure each")
	only := flag.String("only", "", "measure this part alone: calls, meters, loops, pauses, start or kinds")
	document := flag.String("write", "", "write the ratios of the measured parts into this document, and its charts into img beside it")
	flag.Parse()
	if err := run(context.Background(), *only, *document, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "guests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, document string, rounds int) error {
	out := report.New(os.Stdout, fmt.Sprintf("go -C test/bench run ./guests -rounds %d -only "+report.Part, rounds))
	dir, err := os.MkdirTemp("", "guests-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	known := false
	for _, part := range parts {
		if only != "" && only != part.name {
			continue
		}
		known = true
		if err := part.run(ctx, out, dir, rounds); err != nil {
			return err
		}
	}
	if !known {
		return fmt.Errorf("-only: there is no part %q", only)
	}
	return out.Write(document, nil)
}

// contender is one of several ways to do the same work. Each run of it handles per events.
type contender struct {
	name string
	run  func() error
	per  int
}

// compare runs the contenders in turns and reports the median CPU of each per event, and its ratio
// to that of the last.
func compare(out *report.Report, part, title string, rounds, runs int, all []contender) error {
	took := make([][]float64, len(all))
	for round := range rounds + 1 {
		for i, c := range all {
			before := cpuTime()
			for range runs {
				if err := c.run(); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
			if round > 0 { // the first round warms up
				took[i] = append(took[i], float64((cpuTime()-before).Nanoseconds())/float64(runs*c.per))
			}
		}
	}
	last := all[len(all)-1].name
	t := report.Table{
		Part: part, Title: title, Labels: []string{"handler"},
		Columns: []report.Column{
			{Name: "CPU µs", Format: "%.2f"},
			{Name: "CPU", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "guests-" + part, Title: "CPU, as a multiple of that of " + last}},
		},
	}
	base := median(took[len(all)-1])
	for i, c := range all {
		t.Rows = append(t.Rows, report.Row{Labels: []string{c.name}, Figures: []float64{median(took[i]) / 1e3, median(took[i]) / base}})
	}
	return out.Add(t)
}

func median[T float64 | time.Duration](all []T) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// cpuTime returns the CPU time of this process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// build compiles a guest in Go and returns its file.
func build(ctx context.Context, dir, name, source string) (string, error) {
	file := filepath.Join(dir, name+".wasm")
	folder, pkg := filepath.Dir(source), "./"+filepath.Base(source)
	if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
		folder, pkg = source, "."
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", file, pkg)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return file, nil
}
