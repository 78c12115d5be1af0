package plugincmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/solo"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// benchCommand measures a handler.
func benchCommand(components compile.Components) cli.Command {
	return cli.Command{
		Name:    "bench",
		Args:    "FILE",
		Summary: "Measure a handler beside an empty one",
		Description: `
It passes the deltas of FILE (see router plugin run) to the handler again and again, in turns with a handler that does
nothing. Compare the two columns: both contain the cost of the sandbox. The machine's speed and load change the times, but
not the fuel.`,
		Examples: []cli.Example{
			{Line: "router plugin bench pods.yaml", Text: "the only handler of config.yaml"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			a := &alone{}
			opts := solo.BenchOptions{Rounds: 10}
			var whole time.Duration
			a.flags(f, components, slog.LevelWarn)
			f.IntVar(&opts.Batch, "batch", 16, "`NUMBER` of deltas in one call")
			f.DurationVar(&whole, "time", 2*time.Second, "`DURATION` of the measurement")
			return func(ctx context.Context, s cli.Streams, files []string) error {
				switch {
				case len(files) != 1:
					return cli.Mistakef("name one file with objects, as in router plugin bench pod.yaml")
				case opts.Batch < 1 || opts.Batch > maxBenchBatch:
					return cli.Mistakef("-batch must be 1 to %d", maxBenchBatch)
				case whole <= 0:
					return cli.Mistakef("-time must be more than 0")
				}
				opts.Round = whole / time.Duration(2*opts.Rounds)
				return a.bench(ctx, s, files[0], opts)
			}
		},
	}
}

// maxBenchBatch is far above the largest batch of a route.
const maxBenchBatch = 10_000

func (a *alone) bench(ctx context.Context, s cli.Streams, file string, opts solo.BenchOptions) error {
	text, err := cli.ReadFile(s, file)
	if err != nil {
		return cli.Invalid(err)
	}
	h, err := a.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }() // it was only measured
	var deltas []*event.Delta
	bytes := 0
	for d, err := range deltasOf(h, text) {
		if err != nil {
			return cli.Invalid(fmt.Errorf("%s: %w", file, err))
		}
		deltas = append(deltas, d)
		bytes += len(d.Object().JSON())
	}
	if len(deltas) == 0 {
		return cli.Invalid(errors.New(file + " has no objects"))
	}
	none, err := solo.OpenEmpty(ctx, a.components)
	if err != nil {
		return err
	}
	defer func() { _ = none.Close(context.WithoutCancel(ctx)) }() // it was only measured
	found, err := solo.Bench(ctx, deltas, opts, h, none)
	if err != nil {
		return err
	}
	cli.Printf(s.Out, "handler %s (%s), %s with %s each on average, in batches of %d\n\n", h.Name, h.Kind,
		cli.Count(len(deltas), "delta"), Size(float64(bytes)/float64(len(deltas))), opts.Batch)
	printBench(s.Out, found[0], found[1])
	return nil
}

// printBench prints a table: a handler, and the empty one.
func printBench(out io.Writer, h, none solo.Measurement) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(what string, of func(m solo.Measurement) string) {
		cli.Printf(w, "%s\t%s\t%s\t\n", what, of(h), of(none))
	}
	cli.Printf(w, "per delta\tthis handler\tempty handler\t\n")
	row("time (median)", func(m solo.Measurement) string { return fmt.Sprintf("%.1f µs", float64(m.Time.Nanoseconds())/1e3) })
	row("fuel", func(m solo.Measurement) string { return fuel(m, fmt.Sprintf("%.0f", m.Fuel)) })
	row("part of limits.fuel", func(m solo.Measurement) string {
		return fuel(m, fmt.Sprintf("%.3f %%", 100*m.Fuel/float64(m.FuelLimit)))
	})
	row("garbage in the router", func(m solo.Measurement) string { return Size(m.Allocated) })
	row("events", func(m solo.Measurement) string { return fmt.Sprintf("%.2f", m.Events) })
	cli.Printf(w, "\t\t\t\nguest\t\t\t\n")
	row("memory", func(m solo.Measurement) string { return fuel(m, Size(m.Memory)) })
	row("growth of it", func(m solo.Measurement) string { return fuel(m, Size(max(0, m.Growth))) })
	row("deltas measured", func(m solo.Measurement) string { return fmt.Sprint(m.Deltas) })
	_ = w.Flush() // to a buffer or a terminal; its error has no other reader
}

// fuel returns the text if the handler is metered.
func fuel(m solo.Measurement, text string) string {
	if m.FuelLimit == 0 {
		return "-"
	}
	return text
}
