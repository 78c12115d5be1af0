package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// sections returns the generated sections of the page, by their names. There are none for parts
// that were not measured.
func (c *comparison) sections(ctx context.Context) map[string]string {
	all := map[string]string{"programs": c.programsSection(ctx)}
	if len(c.costs) > 0 {
		all[costPart] = c.costSection()
	}
	if len(c.losses) > 0 {
		all[faultsPart] = c.faultsSection()
	}
	if len(c.rest) > 0 {
		all[memoryPart] = c.memorySection()
	}
	return all
}

// programsSection names the programs, their versions and commands.
func (c *comparison) programsSection(ctx context.Context) string {
	where := "in a network namespace with nothing but loopback"
	if !c.alone {
		where = "on the loopback of the machine"
	}
	text := report.Wrap(fmt.Sprintf("On %s these programs ran %s, on %d cores, with Kubernetes and etcd beside them. Each got its configuration from "+
		"[test/bench/peers](../test/bench/peers); DIR is a folder of its own.", c.began.Format(time.DateOnly), where, runtime.NumCPU())) + "\n\n"
	rows := [][]string{{"program", "version", "setting", "command"}}
	for i := range c.programs {
		p := &c.programs[i]
		version := runtime.Version()
		if len(p.binaries) > 0 {
			version = p.versionOf(ctx, c.binary(p.binaries[0]))
		}
		command := c.commands[p.name]
		if command != "" {
			command = "`" + command + "`"
		}
		rows = append(rows, []string{p.name, version, p.note, command})
	}
	text += table(rows, 0) + "\n"
	for _, p := range c.absent {
		line := fmt.Sprintf("%s was left out: its binaries were absent.", p.name)
		if p.untried {
			line += " Its configuration is written from its documentation, and was not tried."
		}
		text += report.Wrap(line) + "\n\n"
	}
	for _, who := range c.contenders() {
		if c.failed[who.label()] != nil {
			text += report.Wrap(fmt.Sprintf("%s failed, and was left out from then on.", who.label())) + "\n\n"
		}
	}
	return text
}

// measured is the last line of a section.
func (c *comparison) measured(part string) string {
	return report.Wrap(fmt.Sprintf("Measured on %s by `go -C test/bench run ./peers -dir DIR -parts %s -rounds %d`.",
		c.began.Format(time.DateOnly), part, c.rounds)) + "\n\n"
}

// costSection has a table for each kind of objects.
func (c *comparison) costSection() string {
	var text string
	for _, w := range []*work{configMaps(), events()} {
		change := "update"
		if !w.updated {
			change = "new object"
		}
		rate := fmt.Sprintf("%d/s", c.size.rate)
		rows := [][]string{{
			w.name, "CPU s for 1,000 at " + rate, "of the router's", "CPU s for 1,000 in a burst", "of the router's",
			"p50 / p99 ms at " + rate, "p50 / p99 ms in a burst", fmt.Sprintf("RSS after %.0f s, MiB", c.size.rssAfter.Seconds()),
		}}
		var ours *costs
		for _, who := range c.contenders() {
			rounds := c.costs[who.label()]
			if who.work.name != w.name || len(rounds) == 0 {
				continue
			}
			m := medianCosts(rounds)
			if ours == nil {
				ours = &m
			}
			name := who.name
			if lost := m.ratedLost + m.burstLost; lost > 0 {
				name += fmt.Sprintf(" (%d not told)", lost)
			}
			rows = append(rows, []string{
				name, fmt.Sprintf("%.2f", m.rated), times(m.rated, ours.rated), fmt.Sprintf("%.2f", m.burst), times(m.burst, ours.burst),
				millis(m.ratedP50) + " / " + millis(m.ratedP99), millis(m.burstP50) + " / " + millis(m.burstP99), fmt.Sprintf("%.0f", m.rss),
			})
		}
		if len(rows) > 1 {
			text += report.Wrap(fmt.Sprintf("%s %s: each %s is one POST; %s at %s, then %s by %d writers.",
				grouped(c.size.objects), w.name, change, grouped(int(c.size.rateFor.Seconds())*c.size.rate), rate, grouped(c.size.objects), writers)) +
				"\n\n" + table(rows, 1) + "\n"
		}
	}
	return text + c.measured(costPart)
}

// faultsSection has one row for each contender.
func (c *comparison) faultsSection() string {
	var example map[string][]losses
	var rows [][]string
	for _, who := range c.contenders() {
		results := c.losses[who.label()]
		if len(results) < len(allFaults()) {
			continue
		}
		if example == nil {
			example = results
		}
		row := []string{who.label()}
		for _, f := range allFaults() {
			rounds := results[f.name]
			row = append(row, between(rounds, func(r losses) int { return r.lost }))
			if example[f.name][0].deleted > 0 {
				told := "–"
				if rounds[0].deleted > 0 {
					told = fmt.Sprintf("%s/%d", between(rounds, func(r losses) int { return r.deletes }), rounds[0].deleted)
				}
				row = append(row, told)
			}
			row = append(row, between(rounds, func(r losses) int { return r.again }))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return c.measured(faultsPart)
	}
	head := []string{"program"}
	for _, f := range allFaults() {
		head = append(head, fmt.Sprintf("%s: lost of %s", f.name, grouped(example[f.name][0].of)))
		if example[f.name][0].deleted > 0 {
			head = append(head, "deletes told")
		}
		head = append(head, "told again")
	}
	return table(append([][]string{head}, rows...), 1) + "\n" + c.measured(faultsPart)
}

// memorySection has one row for each contender.
func (c *comparison) memorySection() string {
	head := []string{"program"}
	for _, n := range []int{c.size.objects, c.size.many} {
		for i, after := range c.size.rest {
			name := fmt.Sprintf("%.0f s", after.Seconds())
			if i == 0 {
				name = grouped(n) + ": " + name
			}
			head = append(head, name)
		}
	}
	rows := [][]string{head}
	for _, who := range c.contenders() {
		results := c.rest[who.label()]
		if len(results) < 2 {
			continue
		}
		row := []string{who.label()}
		for _, n := range []int{c.size.objects, c.size.many} {
			for i := range c.size.rest {
				row = append(row, fmt.Sprintf("%.0f", median(results[n], func(rss []float64) float64 { return rss[i] })))
			}
		}
		rows = append(rows, row)
	}
	return table(rows, 1) + "\n" + c.measured(memoryPart)
}

// medianCosts returns the medians of the rounds.
func medianCosts(rounds []costs) costs {
	figure := func(f func(costs) float64) float64 { return median(rounds, f) }
	span := func(f func(costs) time.Duration) time.Duration {
		return time.Duration(median(rounds, func(r costs) float64 { return float64(f(r)) }))
	}
	return costs{
		ready:     span(func(r costs) time.Duration { return r.ready }),
		rss:       figure(func(r costs) float64 { return r.rss }),
		rated:     figure(func(r costs) float64 { return r.rated }),
		burst:     figure(func(r costs) float64 { return r.burst }),
		ratedP50:  span(func(r costs) time.Duration { return r.ratedP50 }),
		ratedP99:  span(func(r costs) time.Duration { return r.ratedP99 }),
		burstP50:  span(func(r costs) time.Duration { return r.burstP50 }),
		burstP99:  span(func(r costs) time.Duration { return r.burstP99 }),
		ratedLost: int(figure(func(r costs) float64 { return float64(r.ratedLost) })),
		burstLost: int(figure(func(r costs) float64 { return float64(r.burstLost) })),
	}
}

// median returns the middle figure of the rounds, or the mean of the two in the middle.
func median[T any](rounds []T, figure func(T) float64) float64 {
	var all []float64
	for _, r := range rounds {
		all = append(all, figure(r))
	}
	slices.Sort(all)
	if n := len(all); n > 0 {
		return (all[(n-1)/2] + all[n/2]) / 2
	}
	return 0
}

// between returns the lowest and the highest figure of the rounds.
func between[T any](rounds []T, figure func(T) int) string {
	order := func(a, b T) int { return cmp.Compare(figure(a), figure(b)) }
	low, high := figure(slices.MinFunc(rounds, order)), figure(slices.MaxFunc(rounds, order))
	if low == high {
		return fmt.Sprint(low)
	}
	return fmt.Sprintf("%d–%d", low, high)
}

// times returns a figure as a multiple of another one.
func times(figure, of float64) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", figure/of)
}

// millis returns a time in milliseconds.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 10 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

// grouped returns a number with commas.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// table returns a table of Markdown; the first row is its head. The columns after the first ones
// have figures, if there are such first ones.
func table(rows [][]string, labels int) string {
	var b strings.Builder
	for i, row := range rows {
		for _, cell := range row {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		if i > 0 {
			continue
		}
		for k := range row {
			if labels > 0 && k >= labels {
				b.WriteString("|--:")
			} else {
				b.WriteString("|---")
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}
