// Command bench compares the router's informer core with client-go programs: the same stream of
// changes of the same 5 KB pods, from its own server, with one index over spec.nodeName and without
// managedFields in both.
//
//	go -C bench run . [-n OBJECTS] [-m UPDATES] [-rounds ROUNDS] [-only informer|checkpoint|routes|indexes|loops|process|webhook|fleet|workers|hop|scaling|whole]
//	go -C bench run . -namespaces
//	go -C bench run . -restart [-wire-pods N] [-sandbox-pods N] [-rounds ROUNDS]
//	go -C bench run . -footprint [-wire-pods N] [-rounds ROUNDS]
//
// Then it measures the cost of the checkpoint: see throughput. With -restart it compares a restart
// of the router with a cold start instead: see compareRestarts. With -namespaces it compares two
// ways to follow namespaces: see selections. With -footprint it measures the needs of a pod of the
// router: see footprint.
//
// Each measurement is a separate process, so that CPU and heap belong to it alone. The contenders
// take turns, and the medians of the rounds are compared. The ratios are significant: other load on
// the machine affects both sides.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// patience bounds one measurement: a consumer that misses an update would wait for ever.
const patience = 5 * time.Minute

// result is the measurement of one consumer.
type result struct {
	CPUPerUpdate  float64 // µs
	CPUPerObject  float64 // µs, until synced
	HeapPerObject float64 // bytes
	PeakRSS       float64 // MB
}

// contender is one way to watch pods.
type contender struct {
	name    string
	consume func(consumer) error
}

func contenders() []contender {
	return []contender{
		{"deltarouter", consumeRouter},
		{"dynamic", consumeDynamic},
		{"typed", consumeTyped},
	}
}

func main() {
	if serve := serverOf(os.Args[1:]); serve != nil {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", os.Args[1]+":", err)
			os.Exit(1)
		}
		return
	}
	n := flag.Int("n", 20_000, "pods")
	m := flag.Int("m", 60_000, "updates")
	rounds := flag.Int("rounds", 3, "how often to measure each")
	only := flag.String("only", "", "measure nothing but: informer, checkpoint, routes, indexes, loops, rules, process, webhook, fleet, workers, hop, scaling, whole; or some of them, separated by commas")
	role := flag.String("role", "", "used by the command itself: the contender to measure")
	url := flag.String("url", "", "used by the command itself: the server")
	restart := flag.Bool("restart", false, "compare a restart with a cold start instead")
	router := flag.String("router", "../bin/router", "for -restart, -namespaces and -footprint: the router's binary")
	sandbox := flag.String("sandbox", "../bin/sandbox", "for -restart, -namespaces and -footprint: the sandbox's binary")
	onWire := flag.Int("wire-pods", 100_000, "for -restart and -footprint: pods of the server of this command; 0: without it")
	onSandbox := flag.Int("sandbox-pods", 10_000, "for -restart: pods of the sandbox; 0: without it")
	selected := flag.Bool("namespaces", false, "compare a watch for each selected namespace with one for all namespaces instead")
	pod := flag.Bool("footprint", false, "measure image, installation, start and memory instead")
	flag.Parse()
	var err error
	if *pod {
		err = footprint(*router, *sandbox, *onWire, *rounds)
	} else if *selected {
		err = selections(*router, *sandbox)
	} else if *restart {
		err = restarts(*router, *sandbox, *onWire, *onSandbox, *rounds)
	} else {
		err = run(*role, *url, *only, *n, *m, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// serverOf returns the work of a process that this command has started with these arguments; nil if
// a user has started it.
func serverOf(args []string) func() error {
	switch {
	case len(args) == 1 && args[0] == pluginRole:
		return func() error { servePlugin(); return nil }
	case len(args) == 1 && args[0] == receiverRole:
		return func() error { receive(); return nil }
	case len(args) == 2 && args[0] == hopRole:
		return func() error { return serveHop(args[1]) }
	case len(args) == 2 && args[0] == handRole:
		return func() error { return serveHand(args[1]) }
	}
	return nil
}

func run(role, url, only string, n, m, rounds int) error {
	if role == "" {
		return parts(only, n, m, rounds)
	}
	for _, c := range contenders() {
		if c.name == role {
			return c.consume(consumer{url: url, objects: n, updates: m})
		}
	}
	return fmt.Errorf("no contender %q", role)
}

// parts runs all measurements, or those with the given names.
func parts(only string, n, m, rounds int) error {
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(only, ",") {
		wanted[name] = true
	}
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"informer", func() error { return compare(n, m, rounds) }},
		{"checkpoint", func() error { return throughput(n, 2*rounds-1) }},
		{"routes", func() error { return compareTables(rounds) }},
		{"indexes", func() error { return compareIndexes(rounds) }},
		{"process", func() error { return compareBatches(rounds) }},
		{"loops", func() error { return compareLoops(rounds) }},
		{"rules", func() error { return compareRules(rounds) }},
		{"webhook", func() error { return compareWebhooks(rounds) }},
		{"fleet", func() error { return compareReplication(rounds) }},
		{"workers", func() error { return compareWork(rounds) }},
		{"hop", func() error { return compareHop(rounds) }},
		{"scaling", func() error { return compareScaling(rounds) }},
		{"whole", func() error { return compareWhole(n/4, m/6, rounds) }},
	} {
		if only != "" && !wanted[part.name] {
			continue
		}
		delete(wanted, part.name)
		if err := part.measure(); err != nil {
			return err
		}
	}
	if delete(wanted, ""); len(wanted) > 0 {
		return fmt.Errorf("there is no measurement %q", slices.Collect(maps.Keys(wanted)))
	}
	return nil
}

// compare measures every contender rounds times and prints the medians.
func compare(n, m, rounds int) error {
	server, err := startServer(n, m)
	if err != nil {
		return err
	}
	defer server.close()
	fmt.Printf("%d pods of %d bytes (%d without managedFields), %d updates, %d rounds\n",
		n, server.pod.size, server.pod.stripped, m, rounds)

	results := make(map[string][]result)
	for round := range rounds {
		for _, c := range contenders() {
			fmt.Fprintf(os.Stderr, "round %d: %s\n", round+1, c.name)
			r, err := measure(c.name, server.url, n, m)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results[c.name] = append(results[c.name], r)
		}
	}
	report(results)
	return nil
}

// measure runs a contender in a separate process.
func measure(role, url string, n, m int) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-role", role, "-url", url, "-n", strconv.Itoa(n), "-m", strconv.Itoa(m))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return result{}, err
	}
	var r result
	return r, json.Unmarshal(out.Bytes(), &r)
}

func report(results map[string][]result) {
	fmt.Printf("\n%-28s %14s %14s %14s %10s\n", "", "CPU µs/update", "CPU µs/object", "heap B/object", "RSS MB")
	medians := make(map[string]result)
	for _, c := range contenders() {
		r := medianOf(results[c.name])
		medians[c.name] = r
		fmt.Printf("%-28s %14.1f %14.1f %14.0f %10.0f\n", describe(c.name), r.CPUPerUpdate, r.CPUPerObject, r.HeapPerObject, r.PeakRSS)
	}
	ours, dynamic, typed := medians["deltarouter"], medians["dynamic"], medians["typed"]
	fmt.Printf("\nagainst the dynamic informer: CPU per update 1/%.1f, heap per object 1/%.1f\n",
		dynamic.CPUPerUpdate/ours.CPUPerUpdate, dynamic.HeapPerObject/ours.HeapPerObject)
	fmt.Printf("against the typed informer over protobuf (built-in kinds only): CPU per update 1/%.1f, heap per object 1/%.1f\n",
		typed.CPUPerUpdate/ours.CPUPerUpdate, typed.HeapPerObject/ours.HeapPerObject)
}

func describe(name string) string {
	switch name {
	case "dynamic":
		return "client-go dynamic informer"
	case "typed":
		return "client-go typed, protobuf"
	}
	return name
}

func medianOf(rs []result) result {
	return result{
		CPUPerUpdate:  median(rs, func(r result) float64 { return r.CPUPerUpdate }),
		CPUPerObject:  median(rs, func(r result) float64 { return r.CPUPerObject }),
		HeapPerObject: median(rs, func(r result) float64 { return r.HeapPerObject }),
		PeakRSS:       median(rs, func(r result) float64 { return r.PeakRSS }),
	}
}

func median[T any](rs []T, figure func(T) float64) float64 {
	sorted := slices.SortedFunc(slices.Values(rs), func(a, b T) int { return cmp.Compare(figure(a), figure(b)) })
	if len(sorted) == 0 {
		return 0
	}
	return figure(sorted[len(sorted)/2])
}
