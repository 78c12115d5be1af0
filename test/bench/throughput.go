package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// burst is the approximate time of one measurement, long enough for several cuts.
const burst = 8 * time.Second

// throughput compares whole routers with and without a checkpoint on the same stream of updates:
// with the handler restart-alert in batches of 64, and with the cache only, which shows the pure
// cost of the checkpoint. Two routers run all the time and take turns; the median of the ratios is
// significant, because two consecutive turns share the other load on the machine.
func throughput(out *report.Report, n, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &routers{dir: dir, objects: n}
	if err := b.build(); err != nil {
		return err
	}
	t := report.Table{
		Part: "checkpoint", Title: "The cost of the checkpoint",
		Text: fmt.Sprintf("Two routers, one without a state folder, get the same updates as fast as they take them. The figures are those with the checkpoint, divided by "+
			"those without it in the same round: medians of %d rounds, with %d pods.", rounds, n),
		Labels: []string{"work"},
		Columns: []report.Column{
			{Name: "updates/s off", Format: "%.0f"},
			{Name: "updates/s on", Format: "%.0f"},
			{Name: "CPU µs off", Format: "%.1f"},
			{Name: "CPU µs on", Format: "%.1f"},
			{Name: "updates/s", Format: "%.2f", Ratio: true},
			{Name: "CPU per update", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "checkpoint", Title: "CPU for an update with the checkpoint, as a multiple of that without it"}},
		},
	}
	for _, w := range workloads() {
		row, _, err := b.turns(w, rounds, nothing, withState)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		t.Rows = append(t.Rows, row)
	}
	return out.Add(t)
}

// kept is what a router keeps on disk.
type kept string

// The values are the YAML of the configuration; %q is the state folder.
const (
	nothing    kept = ""
	withState  kept = "state: {dir: %q}\nhistory: off\n"
	everything kept = "state: {dir: %q}\n" // the history, too: the default
)

// turns measures one workload with routers that keep less and more, and returns the medians, and
// the bytes of the history for an update.
func (b *routers) turns(w workload, rounds int, less, more kept) (row report.Row, bytes float64, err error) {
	off, err := b.open(w, less)
	if err != nil {
		return row, 0, err
	}
	defer off.close()
	on, err := b.open(w, more)
	if err != nil {
		return row, 0, err
	}
	defer on.close()
	trial, err := off.measure(w, b.objects/10)
	if err != nil {
		return row, 0, err
	}
	if _, err := on.measure(w, b.objects/10); err != nil { // warms up both
		return row, 0, err
	}
	updates := int(trial.rate * burst.Seconds())
	before, all := on.metric("deltarouter_history_bytes"), 0
	var rateOff, rateOn, ratios, cpuOff, cpuOn, cpus []float64
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d: %s, %d updates\n", round+1, w.name, updates)
		without, err := off.measure(w, updates)
		if err != nil {
			return row, 0, fmt.Errorf("with less: %w", err)
		}
		with, err := on.measure(w, updates)
		if err != nil {
			return row, 0, fmt.Errorf("with more: %w", err)
		}
		all += updates
		rateOff, rateOn, ratios = append(rateOff, without.rate), append(rateOn, with.rate), append(ratios, with.rate/without.rate)
		cpuOff, cpuOn, cpus = append(cpuOff, without.cpu), append(cpuOn, with.cpu), append(cpus, with.cpu/without.cpu)
	}
	return report.Row{Labels: []string{w.name}, Figures: []float64{
		middle(rateOff), middle(rateOn), middle(cpuOff), middle(cpuOn), middle(ratios), middle(cpus),
	}}, (on.metric("deltarouter_history_bytes") - before) / float64(all), nil
}

func middle(figures []float64) float64 {
	sorted := slices.SortedFunc(slices.Values(figures), cmp.Compare[float64])
	return sorted[len(sorted)/2]
}

// workload is a configuration for the router's work with updates.
type workload struct {
	name   string
	config string
	done   string // prefix of the metrics whose sum is the number of finished updates
}

func workloads() []workload {
	const route = "routes: [{name: r, from: pods, %s, to: none, overflow: block}]\n"
	return []workload{
		{
			"handler restart-alert, batch 64",
			"handlers: {alert: {wasm: {module: restart-alert.wasm}}}\n" + fmt.Sprintf(route, "ops: updated, handler: alert, batch: {size: 64}"),
			`deltarouter_route_deltas_total{result="d`, // delivered, dropped, dead_lettered
		},
		{
			"cache only (ingest)",
			fmt.Sprintf(route, "ops: deleted"),
			`deltarouter_source_deltas_total{op="updated"`,
		},
	}
}

// routers runs the router's binary.
type routers struct {
	dir      string
	objects  int
	settings string // YAML that follows the resource of the source
	sink     string // YAML of the sink out; empty: it discards
	secure   bool   // the servers speak TLS
	n        int    // number of started routers

	flags []string // of go build, besides the usual ones
	// profile: each router writes the CPU profile of its run into the file profile of its folder.
	profile bool
}

// build builds the router and the handler from the sources beside this module.
func (b *routers) build() error {
	router := []string{"-C", "../..", "build", "-trimpath", "-tags", "grpcnotrace", "-o", filepath.Join(b.dir, "router")}
	for _, build := range []struct {
		env  []string
		args []string
	}{
		{[]string{"CGO_ENABLED=0"}, append(append(router, b.flags...), "./cmd/router")},
		{
			[]string{"GOOS=wasip1", "GOARCH=wasm"},
			[]string{"-C", "../../examples/plugins/restart-alert", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", filepath.Join(b.dir, "restart-alert.wasm"), "."},
		},
	} {
		cmd := exec.Command("go", build.args...)
		cmd.Env = append(os.Environ(), build.env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	return nil
}

// speed is the result of one run.
type speed struct {
	rate float64 // updates/s
	cpu  float64 // µs per update
}

// open starts a router on a new server and waits until it has all objects, in the checkpoint too.
func (b *routers) open(w workload, keeps kept) (p *process, err error) {
	f, err := startFlood(b.objects, b.secure)
	if err != nil {
		return nil, err
	}
	if p, err = b.start(w, f.url, keeps); err != nil {
		f.close()
		return nil, err
	}
	p.server = f
	err = p.wait(func() bool {
		return p.get("/readyz") != "" && p.metric("deltarouter_source_objects") >= float64(b.objects)
	})
	if err == nil && keeps != nothing {
		err = p.saved()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// measure runs the router until the last of n updates is done.
func (p *process) measure(w workload, n int) (speed, error) {
	target := p.metric(w.done) + float64(n)
	began, used := time.Now(), p.metric("process_cpu_seconds_total")
	p.server.send(n)
	if err := p.wait(func() bool { return p.metric(w.done) >= target }); err != nil {
		return speed{}, err
	}
	took := time.Since(began)
	used = p.metric("process_cpu_seconds_total") - used
	if odd := p.metric(`deltarouter_route_deltas_total{result="folded"`) + p.metric(`deltarouter_source_relists_total`); odd > 0 {
		return speed{}, fmt.Errorf("%v updates were folded or lists begun anew", odd)
	}
	return speed{float64(n) / took.Seconds(), used * 1e6 / float64(n)}, nil
}

func (b *routers) start(w workload, url string, keeps kept) (*process, error) {
	b.n++
	dir := filepath.Join(b.dir, strconv.Itoa(b.n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: %t}}]}`, url, b.secure)
	config := fmt.Sprintf("version: 1\ncluster: {name: bench, kubeconfig: %q}\nlisten: {probes: %q}\nsources: {pods: {resource: v1/pods%s}}\nsinks: {none: {discard: {}}, out: {%s}}\n",
		filepath.Join(dir, "kubeconfig"), address, b.settings, cmp.Or(b.sink, "discard: {}")) + strings.ReplaceAll(w.config, "restart-alert.wasm", filepath.Join(b.dir, "restart-alert.wasm"))
	if keeps != nothing {
		config += fmt.Sprintf(string(keeps), filepath.Join(dir, "state"))
	}
	for name, content := range map[string]string{"kubeconfig": kubeconfig, "config.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(filepath.Join(b.dir, "router"), "-config", filepath.Join(dir, "config.yaml")), url: "http://" + address, dir: dir}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if b.profile {
		p.cmd.Env = append(os.Environ(), "ROUTER_PROFILE="+filepath.Join(dir, profileFile))
	}
	return p, p.run()
}

// freeAddress returns an address that was free a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// process is a running router.
type process struct {
	cmd    *exec.Cmd
	url    string // of the probes
	dir    string
	server *flood
	exited chan struct{}
}

func (p *process) run() error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.exited = make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // an early end is an error of wait
		close(p.exited)
	}()
	return nil
}

func (p *process) close() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.exited
	p.server.close()
}

// get returns an answer of the probes' listener; empty after an error.
func (p *process) get(path string) string {
	response, err := http.Get(p.url + path)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// metric sums the metrics with a prefix.
func (p *process) metric(prefix string) (sum float64) {
	for line := range strings.SplitSeq(p.get("/metrics"), "\n") {
		if strings.HasPrefix(line, prefix) {
			value, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			sum += value
		}
	}
	return sum
}

// saved waits for a cut with the present state: the second cut to end.
func (p *process) saved() error {
	for range 2 {
		last := p.metric("deltarouter_checkpoint_age_seconds")
		err := p.wait(func() bool {
			age := p.metric("deltarouter_checkpoint_age_seconds")
			younger := age < last
			last = age
			return younger
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *process) wait(holds func() bool) error {
	for deadline := time.Now().Add(patience); !holds(); {
		select {
		case <-p.exited:
			return p.failed("the process has ended")
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return p.failed("waited in vain")
		}
	}
	return nil
}

func (p *process) failed(how string) error {
	log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return fmt.Errorf("%s; its log ends with\n%s", how, log[max(0, len(log)-4096):])
}
