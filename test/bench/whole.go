package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

const (
	wholeModule = "guests/testdata/scan"
	// wholeSettings follow the resource of the source.
	wholeSettings = ", indexes: {byNode: object.spec.nodeName}"
	wholeFilter   = `object.status.phase == "Running" && object.metadata.labels.team == "payments"`
)

// wholeTask is work for whole processes: the configuration of the router, and the same for a
// hand-written program.
type wholeTask struct {
	name   string
	router workload
	hand   handTask
	// likeAPIServer: the server speaks TLS and HTTP/2, and writes each update by itself.
	likeAPIServer bool
}

func wholeTasks(module string) []wholeTask {
	const (
		ingested  = `deltarouter_source_deltas_total{op="updated"`
		delivered = `deltarouter_route_deltas_total{result="delivered"`
		dropped   = `deltarouter_route_deltas_total{result="dropped"` // by a handler that makes no event
		route     = "routes: [{name: r, from: pods, to: none, overflow: block, %s}]\n"
	)
	filter := fmt.Sprintf("ops: updated, filter: %q", wholeFilter)
	handlers := fmt.Sprintf("handlers: {scan: {wasm: {module: %q}}}\n", module)
	guest := workload{"guest", handlers + fmt.Sprintf(route, filter+", handler: scan"), dropped}
	ingest := workload{"ingest", fmt.Sprintf(route, "ops: deleted"), ingested}
	return []wholeTask{
		{name: "ingest as from an API server", router: ingest, likeAPIServer: true},
		{name: "ingest, one index", router: ingest},
		{name: "and a route that discards", router: workload{"discard", fmt.Sprintf(route, "ops: updated"), delivered}},
		{name: "and a filter that passes", router: workload{"filter", fmt.Sprintf(route, filter), delivered}, hand: handTask{Filter: wholeFilter}},
		{name: "and a bounded Go guest", router: guest, hand: handTask{Filter: wholeFilter, Module: module}},
		{name: "the same, theirs unbounded", router: guest, hand: handTask{Filter: wholeFilter, Module: module, Unbounded: true}},
	}
}

// compareWhole compares the router's binary with hand-written programs around client-go's
// informers: CPU of the whole process per update, after the first sync. The programs of a task run
// all the time and take turns; the ratios are of two turns in a row.
func compareWhole(out *report.Report, objects, updates, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &routers{dir: dir, objects: objects, settings: wholeSettings}
	if err := b.build(); err != nil {
		return err
	}
	module, err := buildGuest(wholeModule, dir)
	if err != nil {
		return err
	}
	t := wholeTable(objects, updates, rounds)
	for _, task := range wholeTasks(module) {
		rows, err := b.compareTask(task, updates, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", task.name, err)
		}
		t.Rows = append(t.Rows, rows...)
	}
	return out.Add(t)
}

func wholeTable(objects, updates, rounds int) report.Table {
	return report.Table{
		Part: "whole", Title: "Whole processes",
		Text: fmt.Sprintf("The router's binary, and programs around client-go's informers that do the same: they keep the pods with one index, evaluate the same "+
			"CEL filter, and call the same guest in wazero with a deadline. Each task includes those above it. The limit only reads the stream and counts its "+
			"lines, in each task. In the last task their guest has no deadline; the router's always has one. In the first task the server speaks TLS and HTTP/2 and writes each update by itself, as an API server does; in the "+
			"others it writes as fast as it can, without TLS. CPU of the process for an update after the first sync, divided by that of the router in the same round: the median of the rounds, "+
			"the lowest and the highest. %d pods, %d updates in a turn, %d rounds.", objects, updates, rounds),
		Labels: []string{"task", "program"},
		Columns: []report.Column{
			{Name: "CPU µs/update", Format: "%.1f"},
			{Name: "CPU", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "whole", Title: "CPU of a whole process for an update, as a multiple of the router's"}},
			{Name: "lowest", Format: "%.2f", Ratio: true},
			{Name: "highest", Format: "%.2f", Ratio: true},
		},
	}
}

// compareTask measures the router and the other programs in turns.
func (b *routers) compareTask(task wholeTask, updates, rounds int) (rows []report.Row, err error) {
	var all []*wholeProcess
	for _, c := range contenders() {
		p, err := b.openWhole(task, c.name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		defer p.close()
		all = append(all, p)
	}
	used, err := takeTurns(all, task.name, updates, rounds)
	if err != nil {
		return nil, err
	}
	for i, p := range all {
		ratios := quotients(used[i], used[0])
		name := task.name
		if i > 0 {
			name = ""
		}
		rows = append(rows, report.Row{
			Labels:  []string{name, describe(p.name)},
			Figures: []float64{middle(used[i]), middle(ratios), slices.Min(ratios), slices.Max(ratios)},
		})
	}
	return rows, nil
}

// takeTurns measures processes in turns, and returns the CPU per update of each in each round.
func takeTurns(all []*wholeProcess, task string, updates, rounds int) ([][]float64, error) {
	used := make([][]float64, len(all))
	for round := range rounds + 1 {
		for i, p := range all {
			n := updates
			if round == 0 { // warms up
				n = updates / 4
			}
			each, err := p.turn(n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			if round > 0 {
				fmt.Fprintf(os.Stderr, "round %d: %s: %s: %.1f\n", round, task, p.name, each)
				used[i] = append(used[i], each)
			}
		}
	}
	return used, nil
}

// quotients divides the figures of each round.
func quotients(figures, by []float64) []float64 {
	ratios := make([]float64, len(figures))
	for round := range ratios {
		ratios[round] = figures[round] / by[round]
	}
	return ratios
}

// wholeProcess is a contender with its own server.
type wholeProcess struct {
	*process
	name  string
	done  string // prefix of the metrics whose sum is the number of finished updates
	alone bool   // the server writes each update by itself
}

// openWhole starts a contender and waits until it has all objects.
func (b *routers) openWhole(task wholeTask, name string) (*wholeProcess, error) {
	if name == "deltarouter" || name == "auto" {
		settings := b.settings
		if name == "auto" {
			b.settings += ", cache: auto"
		}
		b.secure = task.likeAPIServer
		p, err := b.open(task.router, nothing)
		b.settings = settings
		return &wholeProcess{p, name, task.router.done, task.likeAPIServer}, err
	}
	f, err := startFlood(b.objects, task.likeAPIServer)
	if err != nil {
		return nil, err
	}
	p, err := b.startHand(task.hand, name, f.url)
	if err != nil {
		f.close()
		return nil, err
	}
	p.server = f
	if err := p.wait(func() bool { return p.get("/readyz") != "" }); err != nil {
		p.close()
		return nil, err
	}
	return &wholeProcess{p, name, handDone, task.likeAPIServer}, nil
}

// startHand starts a hand-written program.
func (b *routers) startHand(task handTask, informer, url string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, informer)
	if err != nil {
		return nil, err
	}
	if task.Address, err = freeAddress(); err != nil {
		return nil, err
	}
	task.URL, task.Informer, task.Objects = url, informer, b.objects
	argument, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(self, handRole, string(argument)), url: "http://" + task.Address, dir: dir}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	return p, p.run()
}

// turn sends updates, and returns the CPU of the process for each, in µs. It reads the metrics of
// the process only after the server has written all of them, because each reading costs the router
// as much as ten updates.
func (p *wholeProcess) turn(n int) (float64, error) { return p.answer(ask{n: n, alone: p.alone}) }

// answer is turn for any request.
func (p *wholeProcess) answer(a ask) (float64, error) {
	n := a.n
	sent, done := p.server.version.Load()+int64(n), p.metric(p.done)+float64(n)
	before, err := processCPU(p.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	p.server.request(a)
	if err := p.wait(func() bool { return p.server.version.Load() >= sent }); err != nil {
		return 0, err
	}
	if err := p.wait(func() bool { return p.metric(p.done) >= done }); err != nil {
		return 0, err
	}
	after, err := processCPU(p.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	if err := p.exact(done); err != nil {
		return 0, err
	}
	return micros(after-before) / float64(n), nil
}

// exact fails if the process has done something else than the updates.
func (p *wholeProcess) exact(done float64) error {
	if got := p.metric(p.done); got != done {
		return fmt.Errorf("%.0f updates are done, not %.0f", got, done)
	}
	for line := range strings.Lines(p.get("/metrics")) {
		odd := slices.ContainsFunc([]string{"deltarouter_source_relists_total", `result="folded"`, `result="dead_lettered"`, "_failures_total"},
			func(part string) bool { return strings.Contains(line, part) })
		if odd && !strings.HasPrefix(line, "#") && !strings.HasSuffix(line, " 0\n") {
			return fmt.Errorf("unexpected: %s", line)
		}
	}
	return nil
}

// processCPU returns the user and system time of a process, exactly: /proc has ticks of 10 ms.
func processCPU(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of Linux: the clock of a process is ^pid << 3 | 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil { //nolint:gosec // a pid is small
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
