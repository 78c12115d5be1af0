package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

const (
	scalingTime = 5 * time.Second // of each measurement
	// scalingBacklog are the deltas that wait at the begin of a measurement: more than all workers
	// can handle meanwhile.
	scalingBacklog = 10_000
	// Workers share partitions by chance: with many, their shares are about even.
	scalingPartitions = 32
	scalingPending    = 64
	guest             = "guests/testdata/digest"
)

// scaled is the work of some workers at the same time.
type scaled struct {
	rate  float64 // deltas per second
	each  float64 // ms of CPU for a delta
	cores float64 // that the workers had
}

// compareScaling measures the deltas per second of a WASM guest that needs much CPU, with one
// worker and with more: as many as this machine has cores. Each has one.
func compareScaling(out *report.Report, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	module, err := buildGuest(guest, dir)
	if err != nil {
		return err
	}
	h, err := newHop(hopRun{Guest: module, Partitions: scalingPartitions, Pending: scalingPending})
	if err != nil {
		return errors.Join(err, h.close())
	}
	defer func() { err = errors.Join(err, h.close()) }()
	deltas, err := changesOf(2_000)
	if err != nil {
		return err
	}
	most := max(runtime.NumCPU(), 2)
	all := make([][]scaled, most+1) // by the number of workers
	for range rounds {
		for workers := 1; workers <= most; workers++ {
			s, err := h.scale(workers, deltas)
			if err != nil {
				return err
			}
			all[workers] = append(all[workers], s)
		}
	}
	return out.Add(scalingTable(all))
}

func scalingTable(all [][]scaled) report.Table {
	t := report.Table{
		Part: "scaling", Title: "Several workers",
		Text: fmt.Sprintf("Deltas in a WASM guest that needs much CPU, on %d cores, which the servers and other processes use too. Per core: the deltas for each second of "+
			"CPU; 1 means that only the cores limit the rate. Figures as a multiple of those of one worker in the same round.", runtime.NumCPU()),
		Labels: []string{"workers"},
		Columns: []report.Column{
			{Name: "deltas/s", Format: "%.0f"},
			{Name: "CPU ms/delta", Format: "%.2f"},
			{Name: "cores", Format: "%.2f"},
			{Name: "deltas", Format: "%.2f", Ratio: true},
			{Name: "deltas per core", Format: "%.2f", Ratio: true},
		},
	}
	for workers, rounds := range all {
		var rate, ratio, each, cores, share []float64
		for i, s := range rounds { // ratios within a round: the load of others changes
			one := all[1][i]
			rate, ratio = append(rate, s.rate), append(ratio, s.rate/one.rate)
			each, cores, share = append(each, s.each), append(cores, s.cores), append(share, one.each/s.each)
		}
		if workers > 0 {
			t.Rows = append(t.Rows, report.Row{
				Labels:  []string{fmt.Sprint(workers)},
				Figures: []float64{middle(rate), middle(each), middle(cores), middle(ratio), middle(share)},
			})
		}
	}
	return t
}

// buildGuest compiles a guest and returns its file.
func buildGuest(source, dir string) (file string, err error) {
	file = filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", file, ".")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return file, nil
}

// scale measures some workers while all of them have work.
func (h *hop) scale(workers int, deltas []*event.Delta) (s scaled, err error) {
	var all []*hopWorker
	for range workers {
		w, err := startHop(h.file, "GOMAXPROCS=1")
		if err != nil {
			return s, err
		}
		defer w.stop()
		all = append(all, w)
	}
	if err := h.fill(deltas); err != nil {
		return s, err
	}
	if err := begun(all); err != nil {
		return s, err
	}
	began := time.Now()
	before, err := total(all)
	if err != nil {
		return s, err
	}
	time.Sleep(scalingTime)
	after, err := total(all)
	if err != nil {
		return s, err
	}
	if waiting := h.waiting(context.Background()); waiting < scalingBacklog/4 {
		return s, fmt.Errorf("only %d deltas are left: the backlog is too small for these workers", waiting)
	}
	n, took, used := float64(after.Count-before.Count), time.Since(began), after.CPU-before.CPU
	return scaled{n / took.Seconds(), float64(used.Microseconds()) / 1000 / n, used.Seconds() / took.Seconds()}, nil
}

// begun waits until all workers have handled deltas, and then until each has its partitions.
func begun(workers []*hopWorker) error {
	deadline := time.Now().Add(patience)
	for _, w := range workers {
		for {
			a, err := w.sofar()
			if err != nil {
				return err
			}
			if a.Count > 0 {
				break
			}
			if time.Now().After(deadline) {
				return errors.New("a worker handles nothing")
			}
			time.Sleep(settle / 10)
		}
	}
	time.Sleep(settle)
	return nil
}

// total adds up the work of workers since their start.
func total(workers []*hopWorker) (all arrival, err error) {
	for _, w := range workers {
		a, err := w.sofar()
		if err != nil {
			return all, err
		}
		all.CPU += a.CPU
		all.Count += a.Count
	}
	return all, nil
}

// fill publishes deltas until the backlog is full.
func (h *hop) fill(deltas []*event.Delta) error {
	waiting := h.waiting(context.Background())
	if waiting < 0 {
		return errors.New("the backlog is unknown")
	}
	return h.burst(h.events(deltas, max(0, scalingBacklog-int(waiting))))
}

// waiting returns the number of deltas in the stream; -1: it is unknown.
func (h *hop) waiting(ctx context.Context) int64 {
	if shown, known := h.outbox.Show(ctx)[hopRoute]; known {
		return shown.Waiting
	}
	return -1
}
