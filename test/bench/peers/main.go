// Command peers compares the router with other tools that do the same job, and writes the tables of
// docs/PEERS.md: each change of 5,000 ConfigMaps, or of Events, becomes one POST to a webhook.
//
//	make bench PEERS=DIR
//	go -C test/bench run ./peers -dir DIR [-programs NAME,…] [-parts cost,…] [-rounds N] [-short]
//	go -C test/bench run ./peers -dir DIR -write ../../docs/PEERS.md
//
// The folder DIR has the binaries of the tools, which the repository neither has, fetches nor
// builds. A tool whose binaries are absent is named and left out. Without DIR, the router is
// compared with the loop of package bare. With -short a try takes minutes; its figures say nothing.
//
// One program runs at a time, beside a real API server and etcd of its own (bin/sandbox) and the
// receiver of this command, in rounds of opposite order. All get the same objects and changes, and
// a ledger counts their POSTs in the same way: see ledger. A program is a value of the type
// program; its configuration is written by its function setUp.
//
// It is a command of its own, beside the benchmarks of the folder above, because it shares neither
// their server nor their documents: it measures processes of others, counts what they lose, and its
// page has text that is written by hand, while that of the benchmarks consists of ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// The parts of the comparison.
const (
	costPart   = "cost"
	faultsPart = "faults"
	memoryPart = "memory"
)

// options is the command line.
type options struct {
	dir, programs, parts, document string
	router, sandbox                string
	rounds                         int
	short, loopback                bool
}

func main() {
	if len(os.Args) == 5 && os.Args[1] == bareName {
		fmt.Fprintln(os.Stderr, "peers: the loop:", runBare(os.Args[2], os.Args[3], os.Args[4]))
		os.Exit(1)
	}
	var o options
	flag.StringVar(&o.dir, "dir", "", "the folder with the binaries of the other tools")
	flag.StringVar(&o.programs, "programs", "", "compare only these, separated by commas; the router is always there")
	flag.StringVar(&o.parts, "parts", "cost,faults,memory", "measure only these")
	flag.StringVar(&o.document, "write", "", "write the tables into this document")
	flag.StringVar(&o.router, "router", "../../bin/router", "the router's binary")
	flag.StringVar(&o.sandbox, "sandbox", "../../bin/sandbox", "the sandbox's binary")
	flag.IntVar(&o.rounds, "rounds", 2, "how often to measure each")
	flag.BoolVar(&o.short, "short", false, "few objects, in minutes: to try the comparison")
	flag.BoolVar(&o.loopback, "loopback", false, "without a network namespace")
	flag.Parse()
	if err := o.check(); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	alone := os.Getenv(isolatedVariable) != ""
	if !alone && !o.loopback {
		code, err := isolated()
		if err == nil {
			os.Exit(code)
		}
		fmt.Fprintf(os.Stderr, "peers: a network namespace is not permitted here (%v): on the loopback of this machine\n", err)
	}
	if err := run(o, alone); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// check completes the options.
func (o *options) check() (err error) {
	if o.short && o.document != "" {
		return errors.New("the figures of a short run do not belong into a document")
	}
	for part := range strings.SplitSeq(o.parts, ",") {
		if !slices.Contains([]string{costPart, faultsPart, memoryPart}, part) {
			return fmt.Errorf("there is no part %q", part)
		}
	}
	if o.dir != "" {
		o.dir, err = filepath.Abs(o.dir)
	}
	var routerErr, sandboxErr error
	o.router, routerErr = filepath.Abs(o.router)
	o.sandbox, sandboxErr = filepath.Abs(o.sandbox)
	return errors.Join(err, routerErr, sandboxErr)
}

func run(o options, alone bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if alone {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("loopback: %w", err)
		}
	}
	c := newComparison(o, alone)
	if err := c.choose(o.programs); err != nil {
		return err
	}
	for _, p := range c.absent {
		fmt.Fprintf(os.Stderr, "left out: %s, which needs %s\n", p.name, strings.Join(p.missing(c.binary), ", "))
	}
	err := c.measure(ctx, strings.Split(o.parts, ","))
	sections := c.sections(ctx)
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		fmt.Printf("\n%s:\n\n%s", name, sections[name])
	}
	if err != nil || o.document == "" {
		return err
	}
	return report.Fill(o.document, sections)
}

// comparison is a run of this command.
type comparison struct {
	options

	size     size
	alone    bool // in a network namespace of its own
	began    time.Time
	programs []program
	absent   []program
	commands map[string]string // by the names of the programs
	failed   map[string]error  // by the labels of the contenders
	// The results of the rounds, by the labels of the contenders.
	costs  map[string][]costs
	losses map[string]map[string][]losses // by the names of the faults
	rest   map[string]map[int][][]float64 // by the number of objects
}

func newComparison(o options, alone bool) *comparison {
	c := &comparison{
		options: o, size: fullSize(), alone: alone, began: time.Now(), commands: map[string]string{}, failed: map[string]error{},
		costs: map[string][]costs{}, losses: map[string]map[string][]losses{}, rest: map[string]map[int][][]float64{},
	}
	if o.short {
		c.size = shortSize()
	}
	return c
}

// binary returns the path of a binary.
func (c *comparison) binary(name string) string {
	if name == "router" {
		return c.router
	}
	return filepath.Join(c.dir, name)
}

// choose splits the programs into those that run and those that are absent.
func (c *comparison) choose(names string) error {
	wanted := strings.Split(names, ",")
	for _, p := range programs() {
		found := slices.IndexFunc(wanted, func(name string) bool { return strings.EqualFold(name, p.name) })
		if found >= 0 {
			wanted = slices.Delete(wanted, found, found+1)
		}
		switch {
		case names != "" && found < 0 && p.name != own:
		case c.dir == "" && p.name != own && p.name != bareName, len(p.missing(c.binary)) > 0:
			c.absent = append(c.absent, p)
		default:
			c.programs = append(c.programs, p)
		}
	}
	if names != "" && len(wanted) > 0 {
		return fmt.Errorf("there is no program %q", wanted)
	}
	if len(c.programs) == 0 || c.programs[0].name != own {
		return fmt.Errorf("%s is missing: make build", c.router)
	}
	return nil
}

// contenders returns the programs with each of their kinds of objects. Events have contenders only
// if a program tells nothing else.
func (c *comparison) contenders() (all []contender) {
	withEvents := slices.ContainsFunc(c.programs, func(p program) bool { return !p.works[0].updated })
	for _, first := range []bool{true, false} {
		for i := range c.programs {
			for _, w := range c.programs[i].works {
				if w.updated == first && (w.updated || withEvents) {
					all = append(all, contender{&c.programs[i], w})
				}
			}
		}
	}
	return all
}

// measure runs the parts in rounds of opposite order. A program that fails is left out from then
// on.
func (c *comparison) measure(ctx context.Context, parts []string) error {
	for round := range c.rounds {
		order := c.contenders()
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, part := range parts {
			for _, who := range order {
				label := who.label()
				if c.failed[label] != nil {
					continue
				}
				err := c.one(ctx, part, who, fmt.Sprintf("round %d: %s: %s", round+1, part, label))
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					fmt.Fprintf(os.Stderr, "%s: %s: %v\n", part, label, err)
					c.failed[label] = err
				}
			}
		}
	}
	return nil
}

// one measures a part with one contender.
func (c *comparison) one(ctx context.Context, part string, who contender, progress string) error {
	label := who.label()
	switch part {
	case costPart:
		r, err := c.cost(ctx, who)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %+v\n", progress, r)
		c.costs[label] = append(c.costs[label], r)
	case faultsPart:
		if c.losses[label] == nil {
			c.losses[label] = map[string][]losses{}
		}
		for _, f := range allFaults() {
			r, err := c.fault(ctx, who, f)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			fmt.Fprintf(os.Stderr, "%s: %s: %+v\n", progress, f.name, r)
			c.losses[label][f.name] = append(c.losses[label][f.name], r)
		}
	case memoryPart:
		if c.rest[label] == nil {
			c.rest[label] = map[int][][]float64{}
		}
		for _, n := range []int{c.size.objects, c.size.many} {
			rss, err := c.atRest(ctx, who, n)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%s: %d objects: %.0f MiB\n", progress, n, rss)
			c.rest[label][n] = append(c.rest[label][n], rss)
		}
	}
	return nil
}
