package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// restartConfig is the configuration of the compared routers: a typical index, and a route for
// changes.
const restartConfig = `version: 1
cluster: {name: bench, kubeconfig: %q}
state: {dir: %q}
listen: {probes: "127.0.0.1:0"}
sources:
  pods: {resource: v1/pods%s, indexes: {byNode: object.spec.nodeName}}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: pods, ops: updated, to: out}
`

// cluster is a source of pods that change all the time between begin and end.
type cluster interface {
	kubeconfig() string
	namespaces() string // YAML that follows the resource
	begin()
	end() error
	lists() int // number of lists of all pods so far; -1: unknown
}

// start is one start of the router.
type start struct {
	// time from before the start of the process to the first delivery of a change made after it
	first time.Duration
	cpu   time.Duration // CPU of the process until then
}

// compareRestarts measures, in turns, the time from the start of a router to its first live delta:
// of a router without a state, which lists everything, and of one that was stopped and continues.
// It returns the medians and their ratio.
//
// The clock starts before the process is made, and stops when the first line of the route can be
// read from its standard output. From the start on a pod is changed every few milliseconds (on the
// wire server: each millisecond, when a watch has nothing else to send), so this line is about the
// first change that the router could deliver. For the cold start, earlier changes are part of the
// list. Readiness is not awaited. The CPU is that of the process until then: unlike the time, it
// does not depend on other load on the machine.
func compareRestarts(ctx context.Context, name, router string, c cluster, rounds int) (row report.Row, err error) {
	var cold, warm []start
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "%s: round %d\n", name, round+1)
		dir, err := os.MkdirTemp("", "deltarouter-bench")
		if err != nil {
			return row, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		config := filepath.Join(dir, "config.yaml")
		text := fmt.Sprintf(restartConfig, c.kubeconfig(), filepath.Join(dir, "state"), c.namespaces())
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return row, err
		}
		first, err := startRouter(ctx, router, config, c, true)
		if err != nil {
			return row, fmt.Errorf("cold start: %w", err)
		}
		before := c.lists()
		again, err := startRouter(ctx, router, config, c, false)
		if err != nil {
			return row, fmt.Errorf("restart: %w", err)
		}
		if n := c.lists(); n != before {
			return row, errors.New("the restart listed everything")
		}
		cold, warm = append(cold, first), append(warm, again)
	}
	a, b := medianStart(cold), medianStart(warm)
	return report.Row{Labels: []string{name}, Figures: []float64{
		a.first.Seconds(), b.first.Seconds(), a.cpu.Seconds(), b.cpu.Seconds(),
		float64(b.first) / float64(a.first), float64(b.cpu) / float64(a.cpu),
	}}, nil
}

func medianStart(all []start) start {
	middle := func(f func(start) time.Duration) time.Duration {
		figures := make([]time.Duration, len(all))
		for i, s := range all {
			figures[i] = f(s)
		}
		slices.Sort(figures)
		return figures[len(figures)/2].Round(time.Millisecond)
	}
	return start{middle(func(s start) time.Duration { return s.first }), middle(func(s start) time.Duration { return s.cpu })}
}

// startRouter runs the router until it has delivered a change and, with save, until everything is
// on disk.
func startRouter(ctx context.Context, router, config string, c cluster, save bool) (s start, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, router, "-config", config)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return start{}, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return start{}, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return start{}, err
	}
	c.begin()
	probes := make(chan string, 1)
	go readLog(stderr, probes)
	lines := bufio.NewReader(stdout)
	_, err = lines.ReadString('\n')
	s.first = time.Since(began)
	s.cpu = cpuOf(cmd.Process.Pid)
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	err = errors.Join(err, c.end())
	if err == nil && save {
		err = saved(ctx, <-probes)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	return s, errors.Join(err, cmd.Wait())
}

// readLog finds the address of the probes, and shows warnings and errors.
func readLog(log io.Reader, probes chan<- string) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if _, address, ok := strings.Cut(line, `"for":"probes","address":"`); ok {
			address, _, _ = strings.Cut(address, `"`)
			probes <- "http://" + address + "/metrics"
		}
		if !strings.Contains(line, `"level":"INFO"`) {
			fmt.Fprintln(os.Stderr, line)
		}
	}
}

// saved waits for the end of a cut that began after the call: until the age of the checkpoint has
// decreased twice.
func saved(ctx context.Context, metrics string) error {
	for range 2 {
		last := 0.0
		for {
			age, err := checkpointAge(ctx, metrics)
			if err != nil {
				return err
			}
			if age < last {
				break
			}
			last = age
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

func checkpointAge(ctx context.Context, metrics string) (age float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, metrics, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "deltarouter_checkpoint_age_seconds "); ok {
			_, err = fmt.Sscanf(rest, "%g", &age)
			return age, err
		}
	}
	return 0, errors.New("the router does not say how old its checkpoint is")
}

// cpuOf returns the user and system time of a running process; 0 if it is unknown.
func cpuOf(pid int) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	var user, system int
	_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return time.Duration(user+system) * tick
}

// restarts runs the comparison on both clusters.
func restarts(out *report.Report, router, sandboxBinary string, onWire, onSandbox, rounds int) error {
	t := report.Table{
		Part: "restart", Title: "Restart",
		Text: fmt.Sprintf("From the start of the process to the first live delta: a restart with a checkpoint, which lists nothing, divided by a cold start, which lists all "+
			"pods. Medians of %d rounds.", rounds),
		Labels: []string{"server"},
		Columns: []report.Column{
			{Name: "cold s", Format: "%.3f"},
			{Name: "restart s", Format: "%.3f"},
			{Name: "CPU s cold", Format: "%.3f"},
			{Name: "CPU s restart", Format: "%.3f"},
			{Name: "time", Format: "%.3f", Ratio: true, Chart: &report.Chart{Name: "restart", Title: "Time of a restart to its first delta, as a part of that of a cold start"}},
			{Name: "CPU", Format: "%.3f", Ratio: true},
		},
	}
	err := measureRestarts(&t, router, sandboxBinary, onWire, onSandbox, rounds)
	return errors.Join(err, out.Add(t))
}

// measureRestarts adds a row for each server.
func measureRestarts(t *report.Table, router, sandboxBinary string, onWire, onSandbox, rounds int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	router, dir, remove, err := workplace(router)
	if err != nil {
		return err
	}
	defer remove()
	if onWire > 0 {
		w, err := newWire(dir, onWire)
		if err != nil {
			return err
		}
		defer w.close()
		row, err := compareRestarts(ctx, fmt.Sprintf("wire server, %d pods", onWire), router, w, rounds)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, row)
	}
	if onSandbox == 0 {
		return nil
	}
	s, err := newSandbox(ctx, sandboxBinary, filepath.Join(dir, "cluster"), onSandbox)
	if err != nil {
		return err
	}
	row, err := compareRestarts(ctx, fmt.Sprintf("sandbox, %d pods", onSandbox), router, s, rounds)
	if err == nil {
		t.Rows = append(t.Rows, row)
	}
	return errors.Join(err, s.close())
}
