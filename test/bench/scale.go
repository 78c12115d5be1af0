package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

const (
	scaleFew  = 10_000
	scaleMany = 300_000
)

// compareScale compares the CPU per update of a router with few pods and one with many. Each turn
// has three updates of each of the many pods, so that both collect garbage several times. The two
// run all the time and take turns; the ratio is significant.
func compareScale(out *report.Report, n, rounds int) error {
	many := max(n, scaleMany)
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &routers{dir: dir}
	if err := b.build(); err != nil {
		return err
	}
	ingest := workloads()[1]
	var all []*sizedRouter
	for _, objects := range []int{scaleFew, many} {
		s, err := b.openSized(ingest, objects)
		if err != nil {
			return fmt.Errorf("%d pods: %w", objects, err)
		}
		defer s.close()
		all = append(all, s)
	}
	t := scaleTable(many, rounds)
	if t.Rows, err = scaleTurns(ingest, all[0], all[1], rounds); err != nil {
		return err
	}
	for i, s := range all {
		rest := s.rest()
		figures := t.Rows[i].Figures
		t.Rows[i].Figures = append(figures, rest/1e6, rest/float64(s.objects), rest/1e6/figures[4])
	}
	return out.Add(t)
}

func scaleTable(many, rounds int) report.Table {
	return report.Table{
		Part: "scale", Title: "Few pods and many",
		Text: fmt.Sprintf("Two routers with an ingest alone, one with %d pods and one with %d, get the same updates as fast as they take them, %d in a turn. "+
			"CPU of the process for an update with garbage collection, divided by that with few pods in the same round: the median of %d rounds. The first sync "+
			"has the CPU of the start. The resident memory (RSS) is that after the last update, with garbage (GOGC), and that after some minutes without updates, which the last column compares: pods that are as equal as these compress better than those of the part memory.", scaleFew, many, 3*many, rounds),
		Labels: []string{"pods"},
		Columns: []report.Column{
			{Name: "CPU µs/update", Format: "%.1f"},
			{Name: "CPU per update", Format: "%.2f", Ratio: true},
			{Name: "first sync CPU µs/pod", Format: "%.1f"},
			{Name: "GOGC", Format: "%.0f"},
			{Name: "RSS MB", Format: "%.0f"},
			{Name: "RSS B/pod", Format: "%.0f"},
			{Name: "RSS MB at rest", Format: "%.0f"},
			{Name: "RSS B/pod at rest", Format: "%.0f"},
			{Name: "RSS at rest", Format: "%.2f", Ratio: true},
		},
	}
}

// sizedRouter is a router with a number of pods.
type sizedRouter struct {
	*process
	objects int
	synced  float64 // CPU of the first sync, in µs per object
}

// openSized starts a router, and warms it up.
func (b *routers) openSized(w workload, objects int) (*sizedRouter, error) {
	b.objects = objects
	p, err := b.open(w, nothing)
	if err != nil {
		return nil, err
	}
	used, err := processCPU(p.cmd.Process.Pid)
	if err == nil {
		_, err = p.measure(w, max(objects, scaleMany))
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return &sizedRouter{p, objects, micros(used) / float64(objects)}, nil
}

func scaleTurns(w workload, few, many *sizedRouter, rounds int) ([]report.Row, error) {
	var cpuFew, cpuMany, ratios []float64
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d: %s, %d and %d pods\n", round+1, w.name, few.objects, many.objects)
		a, errA := few.measure(w, 3*many.objects)
		b, errB := many.measure(w, 3*many.objects)
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		cpuFew, cpuMany, ratios = append(cpuFew, a.cpu), append(cpuMany, b.cpu), append(ratios, b.cpu/a.cpu)
	}
	return []report.Row{few.row(middle(cpuFew), 1), many.row(middle(cpuMany), middle(ratios))}, nil
}

// rest waits until the resident memory has not shrunk for three minutes, and returns it. Go collects
// garbage every two minutes at least, and returns memory to the system gradually.
func (s *sizedRouter) rest() (rss float64) {
	rss = s.metric("process_resident_memory_bytes")
	for unchanged := 0; unchanged < 12; unchanged++ {
		time.Sleep(15 * time.Second)
		if now := s.metric("process_resident_memory_bytes"); now < rss*0.99 {
			rss, unchanged = now, 0
		}
	}
	return rss
}

// row adds the first sync and the memory.
func (s *sizedRouter) row(cpu, ratio float64) report.Row {
	rss := s.metric("process_resident_memory_bytes")
	return report.Row{
		Labels:  []string{fmt.Sprint(s.objects)},
		Figures: []float64{cpu, ratio, s.synced, s.metric("go_gc_gogc_percent"), rss / 1e6, rss / float64(s.objects)},
	}
}
