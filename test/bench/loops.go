package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

// loopLength is the length of the lists; a second run has twice the length.
const loopLength = 20_000

// compareLoops measures the CPU of loops over a list and over one of twice the length: a ratio of
// about 2 means that the time is linear.
func compareLoops(out *report.Report, rounds int) error {
	t := report.Table{
		Part: "loops", Title: "Loops over lists",
		Text:   fmt.Sprintf("CPU of an expression over a list of %d elements, divided by that over %d: 2 is linear.", 2*loopLength, loopLength),
		Labels: []string{"expression"},
		Columns: []report.Column{
			{Name: fmt.Sprint(loopLength, ", ms"), Format: "%.1f"}, {Name: fmt.Sprint(2*loopLength, ", ms"), Format: "%.1f"}, {Name: "ratio", Format: "%.2f", Ratio: true},
		},
	}
	env, err := cel.NewEnv(cel.EnvConfig{Cluster: "bench", Sources: map[string][]string{"pods": nil}})
	if err != nil {
		return err
	}
	short, err := longLists(loopLength)
	if err != nil {
		return err
	}
	long, err := longLists(2 * loopLength)
	if err != nil {
		return err
	}
	for _, text := range []string{
		`object.long.all(a, true)`, `object.long.filter(a, a + 1 == 2).size() > 0`, `object.maps.exists(m, m.name == "z" || m.value == "z")`,
		`object.maps.map(m, m.name + "/" + m.value).size() > 0`, `object.text.split(",").all(x, x.size() < 9)`,
	} {
		program, err := env.Compile(text, cel.Filter, "pods")
		if err != nil {
			return err
		}
		var times [2][]time.Duration
		for range 2*rounds + 1 {
			for i, obj := range []*event.Object{short, long} {
				begin := cpu()
				for range 3 {
					if _, err := program.Match(context.Background(), cel.Input{Delta: &event.Delta{Source: "pods", Op: event.Added, New: obj}}); err != nil {
						return err
					}
				}
				times[i] = append(times[i], (cpu()-begin)/3)
			}
		}
		one, two := medianTime(times[0]), medianTime(times[1])
		t.Rows = append(t.Rows, report.Row{Labels: []string{"`" + text + "`"}, Figures: []float64{micros(one) / 1000, micros(two) / 1000, float64(two) / float64(one)}})
	}
	return out.Add(t)
}

// longLists is an object with lists of n elements.
func longLists(n int) (*event.Object, error) {
	repeat := func(elem string) string { return strings.TrimSuffix(strings.Repeat(elem, n), ",") }
	return event.ParseObject(&event.Resource{Cluster: "bench"}, `{"metadata":{"name":"x"},"long":[`+repeat("1,")+
		`],"maps":[`+repeat(`{"name":"a","value":"b"},`)+`],"text":"`+repeat("abc,")+`"}`)
}
