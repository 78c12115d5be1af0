package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// startWait is the time from the first sync until the memory of a process is read.
const startWait = 20 * time.Second

// compareStarts measures the memory of whole processes shortly after their first list: users look
// at it then, and a limit is hit there. All processes run at the same time, because others do not
// affect the memory of one.
func compareStarts(out *report.Report, objects int) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &routers{dir: dir}
	if err := b.build(); err != nil {
		return err
	}
	t := report.Table{
		Part: "start", Title: "Memory after a start",
		Text: fmt.Sprintf("The resident memory of a whole process %v after it has listed its first objects, pods of 5.6 KB, and its peak until then. The router has a state folder and one route; "+
			"client-go's informers keep the objects in one cache. As a multiple of the router's.", startWait),
		Labels: []string{"pods", "program"},
		Columns: []report.Column{
			{Name: "RSS MB", Format: "%.0f"},
			{Name: "peak MB", Format: "%.0f"},
			{Name: "RSS", Format: "%.2f", Ratio: true},
			{Name: "peak", Format: "%.2f", Ratio: true},
		},
	}
	for _, n := range []int{objects / 4, objects} {
		b.objects = n
		rows, err := b.compareStart()
		if err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
		t.Rows = append(t.Rows, rows...)
	}
	return out.Add(t)
}

// compareStart starts all programs on servers with one number of pods.
func (b *routers) compareStart() ([]report.Row, error) {
	programs := []string{"deltarouter", "auto", "dynamic", "typed"}
	task := wholeTask{name: "start", router: workload{"start", "routes: [{name: r, from: pods, to: none, " + jobEmit + "}]\n", ""}, likeAPIServer: true}
	all := make([]*wholeProcess, len(programs))
	for i, name := range programs {
		fmt.Fprintf(os.Stderr, "%d pods: %s\n", b.objects, name)
		p, err := b.openStart(task, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer p.close()
		all[i] = p
	}
	time.Sleep(startWait)
	figures := make([][2]float64, len(all))
	for i, p := range all {
		figures[i][0], figures[i][1] = residentMemory(p.cmd.Process.Pid)
	}
	var rows []report.Row
	for i, f := range figures {
		label := fmt.Sprint(b.objects)
		if i > 0 {
			label = ""
		}
		rows = append(rows, report.Row{
			Labels:  []string{label, describe(programs[i])},
			Figures: []float64{f[0], f[1], f[0] / figures[0][0], f[1] / figures[0][1]},
		})
	}
	return rows, nil
}

// openStart is openWhole, with a state folder and a route that reads two fields.
func (b *routers) openStart(task wholeTask, name string) (*wholeProcess, error) {
	if name != "deltarouter" && name != "auto" {
		return b.openWhole(task, name)
	}
	b.secure = task.likeAPIServer
	if b.settings = ""; name == "auto" {
		b.settings = ", cache: auto"
	}
	p, err := b.open(task.router, everything)
	return &wholeProcess{process: p, name: name}, err
}

// residentMemory returns the resident memory of a process and its peak, in MB.
func residentMemory(pid int) (now, peak float64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		var kilobytes float64
		name, value, _ := strings.Cut(line, ":")
		_, _ = fmt.Sscan(value, &kilobytes)
		switch name {
		case "VmRSS":
			now = kilobytes * 1024 / 1e6
		case "VmHWM":
			peak = kilobytes * 1024 / 1e6
		}
	}
	return now, peak
}
