package main

import (
	"errors"
	"fmt"
	"os"
)

const (
	scaleFew  = 10_000
	scaleMany = 300_000
)

// compareScale compares the CPU per update of a router with few pods and one with many. Each turn
// has three updates of each of the many pods, so that both collect garbage several times. The two
// run all the time and take turns; the ratio is significant.
func compareScale(n, rounds int) error {
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
	var running []*process
	defer func() {
		for _, p := range running {
			p.close()
		}
	}()
	for _, objects := range []int{scaleFew, many} {
		b.objects = objects
		p, err := b.open(ingest, false)
		if err != nil {
			return fmt.Errorf("%d pods: %w", objects, err)
		}
		running = append(running, p)
		if _, err := p.measure(ingest, max(objects, scaleMany)); err != nil { // warms up
			return err
		}
	}
	return scaleTurns(ingest, running[0], running[1], many, rounds)
}

func scaleTurns(w workload, few, many *process, objects, rounds int) error {
	var cpuFew, cpuMany, ratios []float64
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d: %s, %d and %d pods\n", round+1, w.name, scaleFew, objects)
		a, errA := few.measure(w, 3*objects)
		b, errB := many.measure(w, 3*objects)
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		cpuFew, cpuMany, ratios = append(cpuFew, a.cpu), append(cpuMany, b.cpu), append(ratios, b.cpu/a.cpu)
	}
	fmt.Printf("\n%-34s %14s %8s %10s %12s %16s\n", w.name, "CPU µs/update", "ratio", "GOGC", "RSS MB", "RSS B/object")
	fmt.Printf("%-34s %14.1f %8.2f %s\n", fmt.Sprint(scaleFew, " pods"), middle(cpuFew), 1.0, few.memory(scaleFew))
	fmt.Printf("%-34s %14.1f %8.2f %s\n", fmt.Sprint(objects, " pods"), middle(cpuMany), middle(ratios), many.memory(objects))
	return nil
}

// memory returns the columns about the memory of a router with some objects.
func (p *process) memory(objects int) string {
	rss := p.metric("process_resident_memory_bytes")
	return fmt.Sprintf("%10.0f %12.0f %16.0f", p.metric("go_gc_gogc_percent"), rss/1e6, rss/float64(objects))
}
