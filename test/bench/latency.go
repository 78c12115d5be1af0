package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/test/bench/report"
	"github.com/deltarouter/deltarouter/test/natstest"
)

const (
	watchRole   = "watch" // the argument that makes this command the bare watch; its URL follows
	latencyPods = 1_000
)

// stream is the changes of one turn.
type stream struct {
	name string
	ask
}

func latencyStreams() []stream {
	return []stream{
		{"100 updates/s", ask{n: 1_000, rate: 100}},
		{"100 new pods/s", ask{n: 1_000, rate: 100, created: true}},
		{"1,000 updates/s", ask{n: 5_000, rate: 1_000}},
		{"as many as possible", ask{n: 20_000}},
	}
}

// contestant gets the changes of a server of its own and reports their arrival.
type contestant struct {
	name   string
	server *flood
	watch  *stopwatch
	close  func()
}

// compareLatency measures the time from the API server until a change has arrived: at a client that
// only reads a watch, and behind a router with a checkpoint, one route and default settings, in a
// webhook's receiver, a subscriber of NATS and a reader of a file. The server and all receivers are
// this process. The contestants take turns; the ratios are to the bare watch in the same round, and
// the table has their medians.
func compareLatency(out *report.Report, streams []stream, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &routers{dir: dir, objects: latencyPods}
	if err := b.build(); err != nil {
		return err
	}
	servers, err := natstest.Launch(dir, natstest.Config{})
	if err != nil {
		return err
	}
	defer servers.Close()
	all, closeAll, err := b.contestants(servers.URL())
	defer closeAll()
	if err != nil {
		return err
	}
	t := latencyTable(rounds)
	for _, s := range streams {
		rows, err := compareStream(all, s, rounds)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, rows...)
	}
	return out.Add(t)
}

func latencyTable(rounds int) report.Table {
	return report.Table{
		Part: "latency", Title: "From the API server to a sink",
		Text: fmt.Sprintf("Time from before the server writes a change until it has arrived: at a client that only reads the watch, and behind a router with a "+
			"checkpoint and one route with default settings, in the receiver of a webhook, a subscriber of NATS and a reader of a file. Changes come at random "+
			"times with these rates on average, of %d pods. A new pod waits for the checkpoint, and a rare change for no other; see RATIONALE. Changes per "+
			"second and times as a multiple of those of the bare watch in the same round: medians of %d rounds.", latencyPods, rounds),
		Labels: []string{"stream", "to"},
		Columns: []report.Column{
			{Name: "changes/s", Format: "%.0f"},
			{Name: "p50 ms", Format: "%.2f"},
			{Name: "p99 ms", Format: "%.2f"},
			{Name: "p999 ms", Format: "%.2f"},
			{Name: "changes/s", Format: "%.2f", Ratio: true},
			{Name: "p50", Format: "%.1f", Ratio: true},
			{Name: "p99", Format: "%.1f", Ratio: true},
			{Name: "p999", Format: "%.1f", Ratio: true},
		},
	}
}

// compareStream measures one stream in turns.
func compareStream(all []*contestant, s stream, rounds int) (rows []report.Row, err error) {
	times := make([][]lapse, len(all)) // by contestant and round
	for round := range rounds {
		for i, c := range all {
			fmt.Fprintf(os.Stderr, "round %d: %s: %s\n", round+1, s.name, c.name)
			l, err := c.turn(s.ask)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", s.name, c.name, err)
			}
			times[i] = append(times[i], l)
		}
	}
	for i, c := range all {
		row := report.Row{Labels: []string{s.name, c.name}, Figures: lapses(times[i], times[0])}
		if i > 0 {
			row.Labels[0] = ""
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// lapses returns the medians of the rate and the times, and of their ratios to those of the bare
// watch.
func lapses(times, bare []lapse) []float64 {
	const n = 1 + len(lapse{}.shares)
	figures := make([][]float64, 2*n)
	for round, l := range times {
		of := bare[round]
		figures[0], figures[n] = append(figures[0], l.rate), append(figures[n], l.rate/of.rate)
		for k, share := range l.shares {
			figures[1+k], figures[n+1+k] = append(figures[1+k], share), append(figures[n+1+k], share/of.shares[k])
		}
	}
	medians := make([]float64, len(figures))
	for i := range figures {
		medians[i] = middle(figures[i])
	}
	return medians
}

// turn sends the changes, and waits until all have arrived.
func (c *contestant) turn(a ask) (lapse, error) {
	first := int(c.server.version.Load()) + 1
	done := c.watch.start(first, a.n)
	a.note = c.watch.sent
	c.server.request(a)
	select {
	case <-done:
		return c.watch.lapse(), nil
	case <-time.After(patience):
		return lapse{}, fmt.Errorf("%d of %d changes have not arrived", c.watch.left(), a.n)
	}
}

// contestants starts the bare watch, which is the first, and the routers.
func (b *routers) contestants(natsURL string) (all []*contestant, closeAll func(), err error) {
	closeAll = func() {
		for _, c := range slices.Backward(all) {
			c.close()
		}
	}
	bare, err := newBareWatch()
	if err != nil {
		return all, closeAll, err
	}
	all = append(all, bare)
	for _, c := range []struct {
		name string
		open func(*stopwatch) (sink string, end func(), err error)
	}{
		{"webhook", hookArrivals},
		{"NATS", func(w *stopwatch) (string, func(), error) { return natsArrivals(w, natsURL) }},
		{"file", func(w *stopwatch) (string, func(), error) { return fileArrivals(w, filepath.Join(b.dir, "events")) }},
	} {
		watch := &stopwatch{}
		sink, end, err := c.open(watch)
		if err != nil {
			return all, closeAll, fmt.Errorf("%s: %w", c.name, err)
		}
		b.sink = sink
		p, err := b.open(workload{config: "routes: [{name: r, from: pods, to: out, overflow: block}]\n"}, everything)
		if err != nil {
			end()
			return all, closeAll, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, &contestant{c.name, p.server, watch, func() { p.close(); end() }})
	}
	return all, closeAll, nil
}

// newBareWatch starts a process that only reads a watch.
func newBareWatch() (*contestant, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f, err := startFlood(latencyPods, false)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, watchRole, f.url+"/api/v1/pods?watch=1&resourceVersion="+fmt.Sprint(firstVersion+f.version.Load()))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err = cmp.Or(err, cmd.Start()); err != nil {
		f.close()
		return nil, err
	}
	lines := bufio.NewReader(out)
	c := &contestant{"bare watch", f, &stopwatch{}, func() { f.close(); _ = cmd.Wait() }} // it ends with its connection
	if _, err := lines.ReadString('\n'); err != nil {
		c.close()
		return nil, err
	}
	go c.watch.lines(lines, "")
	return c, nil
}

// watchPods reads a watch, and writes a line when it is open, and the version of each change.
func watchPods(url string) error {
	response, err := http.Get(url) //nolint:gosec // the server of this command
	if err != nil {
		return err
	}
	defer response.Body.Close()
	fmt.Println("open")
	for frames := bufio.NewReaderSize(response.Body, 1<<20); ; {
		frame, err := frames.ReadSlice('\n')
		if err != nil {
			return nil //nolint:nilerr // the server closes the connection at the end
		}
		_, rest, _ := bytes.Cut(frame, []byte(`"resourceVersion":"`))
		fmt.Printf("%s\n", rest[:len(markVersion)])
	}
}

// hookArrivals starts the receiver of a webhook.
func hookArrivals(w *stopwatch) (sink string, end func(), err error) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.arrived(body, eventVersion)
	}))
	return fmt.Sprintf("webhook: {url: %q}", s.URL), s.Close, nil
}

// natsArrivals starts a subscriber of the stream that the sink makes.
func natsArrivals(w *stopwatch, url string) (sink string, end func(), err error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return "", nil, err
	}
	_, err = conn.Subscribe("k8s.>", func(m *nats.Msg) { w.came(m.Header.Get("ce-k8sresourceversion")) })
	if err = cmp.Or(err, conn.Flush()); err != nil {
		conn.Close()
		return "", nil, err
	}
	return fmt.Sprintf("nats: {servers: [%q], stream: {name: bench, create: true, maxBytes: 256Mi}}", url), conn.Close, nil
}
