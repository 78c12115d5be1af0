// Command peers compares the router with other tools that do the same job: each change of 5,000
// ConfigMaps, or of Events, becomes one POST to a webhook. So far, the other tool is the loop of
// package bare.
//
//	go -C test/bench run ./peers [-rounds N] [-short]
//
// One program runs at a time, beside a real API server and etcd of its own (bin/sandbox) and the
// receiver of this command, in rounds of opposite order. All get the same objects and changes, and
// a ledger counts their POSTs in the same way: see ledger. A program is a value of the type program;
// its configuration is written by its function setUp.
//
// It is a command of its own, beside the benchmarks of the folder above, because it shares neither
// their server nor their documents: it measures processes of others, and counts what they lose.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == bareName {
		fmt.Fprintln(os.Stderr, "peers: the loop:", runBare(os.Args[2], os.Args[3], os.Args[4]))
		os.Exit(1)
	}
	c := &comparison{size: fullSize(), commands: map[string]string{}}
	dir := flag.String("dir", "", "the folder with the binaries of the other tools")
	flag.StringVar(&c.router, "router", "../../bin/router", "the router's binary")
	flag.StringVar(&c.sandbox, "sandbox", "../../bin/sandbox", "the sandbox's binary")
	rounds := flag.Int("rounds", 2, "how often to measure each")
	short := flag.Bool("short", false, "few objects, in minutes: to try the comparison")
	flag.Parse()
	if *short {
		c.size = shortSize()
	}
	if err := c.run(*dir, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// comparison is a run of this command.
type comparison struct {
	dir, router, sandbox string
	size                 size
	commands             map[string]string // by the names of the programs
}

// binary returns the path of a binary.
func (c *comparison) binary(name string) string {
	if name == "router" {
		return c.router
	}
	return filepath.Join(c.dir, name)
}

// run measures the cost of all programs, and prints it.
func (c *comparison) run(dir string, rounds int) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, path := range []*string{&dir, &c.router, &c.sandbox} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	c.dir = dir
	for round := range rounds {
		order := contenders()
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, who := range order {
			if missing := who.missing(c.binary); len(missing) > 0 {
				fmt.Printf("left out: %s, which needs %s\n", who.name, strings.Join(missing, ", "))
				continue
			}
			r, err := c.cost(ctx, who)
			if err != nil {
				return err
			}
			fmt.Printf("round %d: %s: %+v: %s\n", round+1, who.label(), r, c.commands[who.name])
		}
	}
	return nil
}

// contenders returns the programs with each of their kinds of objects.
func contenders() (all []contender) {
	for _, p := range []program{router(), bareLoop()} {
		for _, w := range p.works {
			all = append(all, contender{&p, w})
		}
	}
	return all
}
