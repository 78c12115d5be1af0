package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// restTime is longer than the time after which the router compresses an object, see package index.
const restTime = 3 * time.Minute

// errRested ends a consumer that measures the memory alone.
var errRested = errors.New("the memory was measured")

// rest measures the heap after a time without changes, and prints the result.
func (c *consumer) rest() error {
	time.Sleep(restTime)
	c.result.HeapAtRest = c.heapPerObject()
	return errors.Join(c.print(), errRested)
}

// compareMemory measures the heap of all contenders that keep objects, at the same time, because
// other processes do not affect it.
func compareMemory(out *report.Report, n int) error {
	server, err := startServer(n, 0)
	if err != nil {
		return err
	}
	defer server.close()
	if err := server.pod.vary(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "memory: %v at rest\n", restTime)
	all := keepers()
	results := make([]result, len(all))
	measuring, _ := errgroup.WithContext(context.Background())
	for i, c := range all {
		measuring.Go(func() (err error) {
			results[i], err = measure(c.name, server.url, n, 0)
			return err
		})
	}
	if err := measuring.Wait(); err != nil {
		return err
	}
	return out.Add(memoryTable(all, results, n, server.pod.stripped))
}

// keepers returns the contenders that keep objects.
func keepers() (all []contender) {
	for _, c := range contenders() {
		if c.name != "limit" {
			all = append(all, c)
		}
	}
	return all
}

func memoryTable(all []contender, results []result, n, size int) report.Table {
	t := report.Table{
		Part: "memory", Title: "Memory of pods at rest",
		Text: fmt.Sprintf("The heap of a cached pod with one index, after a collection, when all pods have been listed, and %v later. The router compresses "+
			"objects at rest. Each of the %d pods of %d bytes differs from all others in half of its strings of six bytes or more, such as names, "+
			"images, addresses and labels; pods of a Deployment differ in far fewer. As a multiple of the router's with `cache: full` in the same column.", restTime, n, size),
		Labels: []string{"program"},
		Columns: []report.Column{
			{Name: "after the list B/pod", Format: "%.0f"},
			{Name: "at rest B/pod", Format: "%.0f"},
			{Name: "after the list", Format: "%.2f", Ratio: true},
			{Name: "at rest", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "memory-rest", Title: "Heap for a pod at rest, as a multiple of the router's"}},
		},
	}
	for i, r := range results {
		t.Rows = append(t.Rows, report.Row{Labels: []string{describe(all[i].name)}, Figures: []float64{
			r.HeapPerObject, r.HeapAtRest, r.HeapPerObject / results[0].HeapPerObject, r.HeapAtRest / results[0].HeapAtRest,
		}})
	}
	return t
}
