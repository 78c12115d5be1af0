// Command bench compares the router's informer core with client-go programs: the same stream of
// changes of the same 5 KB pods, from its own server, with one index over spec.nodeName and without
// managedFields in both.
//
//	go -C test/bench run . [-n OBJECTS] [-m UPDATES] [-rounds ROUNDS] [-only PART,…]
//	go -C test/bench run . -write ../../docs/BENCHMARKS.md
//	go -C test/bench run . -profile ../../cmd/router/default.pgo
//	go -C test/bench run . -profile FILE -only job
//	go -C test/bench run . -namespaces
//	go -C test/bench run . -shards [-shard-objects N]
//	go -C test/bench run . -restart [-wire-pods N] [-sandbox-pods N] [-rounds ROUNDS]
//	go -C test/bench run . -footprint [-wire-pods N] [-rounds ROUNDS]
//
// Then it measures the cost of the checkpoint: see throughput. With -restart it compares a restart
// of the router with a cold start instead: see compareRestarts. With -namespaces it compares two
// ways to follow namespaces: see selections. With -shards it measures several routers that share a
// watch: see shards. With -footprint it measures the needs of a pod of the
// router: see footprint.
//
// With -write the ratios of the measured parts replace their sections of a document: see package
// report.
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
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// patience bounds one measurement: a consumer that misses an update would wait for ever.
const patience = 5 * time.Minute

// result is the measurement of one consumer.
type result struct {
	CPUPerUpdate  float64 // µs
	CPUPerObject  float64 // µs, until synced
	HeapPerObject float64 // bytes
	HeapAtRest    float64 // bytes, per object; see memory.go
	GCPerObject   float64 // ns, of one collection
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
		{"auto", consumeKept},
		{"dynamic", consumeDynamic},
		{"typed", consumeTyped},
		{"limit", consumeLimit},
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
	pgo := flag.String("profile", "", "write a CPU profile of the router with the work of -only whole into this file instead, for the compiler; with -only job one of each work of a webhook job")
	only := flag.String("only", "", "measure nothing but: informer, memory, start, latency, checkpoint, history, routes, indexes, loops, rules, process, webhook, job, fleet, workers, hop, scaling, scale, pgo, whole; or some of them, separated by commas")
	document := flag.String("write", "", "write the ratios of the measured parts into this document, and its charts into img beside it")
	role := flag.String("role", "", "used by the command itself: the contender to measure")
	url := flag.String("url", "", "used by the command itself: the server")
	restart := flag.Bool("restart", false, "compare a restart with a cold start instead")
	router := flag.String("router", "../../bin/router", "for -restart, -namespaces, -shards and -footprint: the router's binary")
	sandbox := flag.String("sandbox", "../../bin/sandbox", "for -restart, -namespaces, -shards and -footprint: the sandbox's binary")
	onWire := flag.Int("wire-pods", 100_000, "for -restart and -footprint: pods of the server of this command; 0: without it")
	onSandbox := flag.Int("sandbox-pods", 10_000, "for -restart: pods of the sandbox; 0: without it")
	selected := flag.Bool("namespaces", false, "compare a watch for each selected namespace with one for all namespaces instead")
	pod := flag.Bool("footprint", false, "measure image, installation, start and memory instead")
	sharding := flag.Bool("shards", false, "measure routers that each watch a shard of the sandbox instead")
	onShards := flag.Int("shard-objects", 50_000, "for -shards: objects of the sandbox")
	flag.Parse()
	var err error
	if *pgo != "" && *only == "job" {
		err = recordJobs(*pgo, *n, *m)
	} else if *pgo != "" {
		err = recordProfile(*pgo, *n/4, *m)
	} else if *pod {
		err = footprint(*router, *sandbox, *onWire, *rounds)
	} else if *sharding {
		err = shards(*router, *sandbox, *onShards)
	} else if *selected {
		err = selections(*router, *sandbox)
	} else if *restart {
		out := report.New(os.Stdout, fmt.Sprintf("go -C test/bench run . -restart -wire-pods %d -sandbox-pods %d -rounds %d", *onWire, *onSandbox, *rounds))
		if err = restarts(out, *router, *sandbox, *onWire, *onSandbox, *rounds); err == nil {
			err = out.Write(*document, nil)
		}
	} else {
		err = run(*role, *url, *only, *document, *n, *m, *rounds)
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
	case len(args) == 2 && args[0] == watchRole:
		return func() error { return watchPods(args[1]) }
	case len(args) == 2 && args[0] == hopRole:
		return func() error { return serveHop(args[1]) }
	case len(args) == 2 && args[0] == handRole:
		return func() error { return serveHand(args[1]) }
	}
	return nil
}

func run(role, url, only, document string, n, m, rounds int) error {
	if role == "" {
		return parts(only, document, n, m, rounds)
	}
	for _, c := range contenders() {
		if c.name == role {
			if err := c.consume(consumer{url: url, objects: n, updates: m}); !errors.Is(err, errRested) {
				return err
			}
			return nil
		}
	}
	return fmt.Errorf("no contender %q", role)
}

// parts runs all measurements, or those with the given names.
func parts(only, document string, n, m, rounds int) error {
	out := report.New(os.Stdout, commandOf(n, m, rounds))
	var order []string
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(only, ",") {
		wanted[name] = true
	}
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"informer", func() error { return compare(out, n, m, rounds) }},
		{"memory", func() error { return compareMemory(out, n) }},
		{"start", func() error { return compareStarts(out, n) }},
		{"latency", func() error { return compareLatency(out, latencyStreams(), rounds) }},
		{"checkpoint", func() error { return throughput(out, n, 2*rounds-1) }},
		{"history", func() error { return compareHistory(out, n, 2*rounds-1) }},
		{"routes", func() error { return compareTables(out, rounds) }},
		{"indexes", func() error { return compareIndexes(out, rounds) }},
		{"process", func() error { return compareBatches(out, rounds) }},
		{"loops", func() error { return compareLoops(out, rounds) }},
		{"rules", func() error { return compareRules(out, rounds) }},
		{"webhook", func() error { return compareWebhooks(out, rounds) }},
		{"job", func() error { return compareJobs(out, n/4, m/30, rounds) }},
		{"fleet", func() error { return compareReplication(rounds) }},
		{"workers", func() error { return compareWork(out, rounds) }},
		{"hop", func() error { return compareHop(rounds) }},
		{"scaling", func() error { return compareScaling(out, rounds) }},
		{"scale", func() error { return compareScale(out, n, rounds) }},
		{"pgo", func() error { return comparePGO(out, n/4, m/6, rounds) }},
		{"whole", func() error { return compareWhole(out, n/4, m/6, rounds) }},
	} {
		order = append(order, part.name)
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
	return out.Write(document, order)
}

// commandOf returns the command that repeats the measurements.
func commandOf(n, m, rounds int) string {
	return fmt.Sprintf("go -C test/bench run . -n %d -m %d -rounds %d -only "+report.Part, n, m, rounds)
}

// compare measures every contender rounds times.
func compare(out *report.Report, n, m, rounds int) error {
	server, err := startServer(n, m)
	if err != nil {
		return err
	}
	defer server.close()
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
	sizes := fmt.Sprintf("%d pods of %d bytes (%d without managedFields), %d updates, %d rounds.", n, server.pod.size, server.pod.stripped, m, rounds)
	return out.Add(informerTable(results, sizes))
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

// informerTable has the medians of the contenders, and their ratios to the first one.
func informerTable(results map[string][]result, sizes string) report.Table {
	t := report.Table{
		Part: "informer", Title: "Watching pods",
		Text: "From the socket to a cache with one index, in a process for each program: the router's informer, client-go's dynamic informer, which works " +
			"with any kind, and its typed informer over protobuf, which built-in kinds alone have. The limit reads the same bytes as the router and counts " +
			"the lines. Figures as a multiple of the router's. " + sizes,
		Labels: []string{"program"},
		Columns: []report.Column{
			{Name: "CPU µs/update", Format: "%.1f"},
			{Name: "CPU µs/object", Format: "%.1f"},
			{Name: "heap B/object", Format: "%.0f"},
			{Name: "GC ns/object", Format: "%.0f"},
			{Name: "RSS MB", Format: "%.0f"},
			{Name: "CPU per update", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "informer-cpu", Title: "CPU to watch an update, as a multiple of the router's"}},
			{Name: "CPU per object of the list", Format: "%.2f", Ratio: true},
			{Name: "heap per object", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "informer-heap", Title: "Heap for a cached pod, as a multiple of the router's"}},
			{Name: "peak RSS", Format: "%.2f", Ratio: true},
		},
	}
	var ours result
	for i, c := range contenders() {
		r := medianOf(results[c.name])
		if i == 0 {
			ours = r
		}
		heap := r.HeapPerObject / ours.HeapPerObject
		if c.name == "limit" { // it keeps nothing
			r.HeapPerObject, heap = report.None(), report.None()
		}
		t.Rows = append(t.Rows, report.Row{Labels: []string{describe(c.name)}, Figures: []float64{
			r.CPUPerUpdate, r.CPUPerObject, r.HeapPerObject, r.GCPerObject, r.PeakRSS,
			r.CPUPerUpdate / ours.CPUPerUpdate, r.CPUPerObject / ours.CPUPerObject, heap, r.PeakRSS / ours.PeakRSS,
		}})
	}
	return t
}

func describe(name string) string {
	switch name {
	case "auto":
		return "deltarouter, cache: auto"
	case "dynamic":
		return "client-go dynamic informer"
	case "typed":
		return "client-go typed, protobuf"
	case "limit":
		return "read and count lines"
	}
	return name
}

func medianOf(rs []result) result {
	return result{
		CPUPerUpdate:  median(rs, func(r result) float64 { return r.CPUPerUpdate }),
		CPUPerObject:  median(rs, func(r result) float64 { return r.CPUPerObject }),
		HeapPerObject: median(rs, func(r result) float64 { return r.HeapPerObject }),
		GCPerObject:   median(rs, func(r result) float64 { return r.GCPerObject }),
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
