package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

const (
	receiverRole = "receiver" // the argument that makes this command the receiver
	hookData     = 1 << 10    // bytes of an event's data
	hookBatch    = 64
	hookTime     = 2 * time.Second
)

// receive answers requests until standard input ends.
func receive() {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer s.Close()
	_, _ = fmt.Fprintln(os.Stdout, s.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// compareWebhooks measures the events per second of CPU that reach a receiver, which is a separate
// process: with the webhook sink in each of its modes, and with a loop that posts the same bytes
// with an http.Client.
func compareWebhooks(out *report.Report, rounds int) error {
	url, stop, err := startReceiver()
	if err != nil {
		return err
	}
	defer stop()
	const loop = "http.Client loop"
	names := []string{loop, "mode: structured", "mode: binary", "mode: batched", "body: event.data"}
	figures := make(map[string][]float64)
	for range rounds {
		for _, name := range names {
			write, end := plainLoop(url), func() {}
			if name != loop {
				if write, end, err = openHook(url, name); err != nil {
					return err
				}
			}
			each, err := timeHook(write)
			end()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			figures[name] = append(figures[name], each)
		}
	}
	same := func(f float64) float64 { return f }
	plain := median(figures[loop], same)
	t := report.Table{
		Part: "webhook", Title: "The webhook sink",
		Text: fmt.Sprintf("Events for each second of CPU, beside a loop that posts the same bytes with an http.Client: data of %d bytes, %d events in a write, one writer, "+
			"%d rounds.", hookData, hookBatch, rounds),
		Labels: []string{"sender"},
		Columns: []report.Column{
			{Name: "events/CPU-s", Format: "%.0f"},
			{Name: "events per CPU", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "webhook", Title: "Events of the webhook sink for each second of CPU, as a multiple of those of a loop"}},
		},
	}
	for _, name := range names {
		m := median(figures[name], same)
		t.Rows = append(t.Rows, report.Row{Labels: []string{name}, Figures: []float64{m, m / plain}})
	}
	return out.Add(t)
}

func startReceiver() (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, receiverRole)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { _ = in.Close(); _ = cmd.Wait() }
	url, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, err
	}
	return strings.TrimSpace(url), stop, nil
}

// openHook opens the sink with a line of configuration.
func openHook(url, line string) (write func([]event.Event) error, end func(), err error) {
	node, problems := config.ParseNode("bench", []byte("url: "+url+"\n"+line+"\n"))
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	sink, err := webhook.Kind().Open(ctx, node, plugins.SinkEnv{Env: plugins.Env{Name: "bench", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}})
	if err != nil {
		return nil, nil, err
	}
	return func(events []event.Event) error { return errors.Join(sink.Write(ctx, events)...) }, func() { _ = sink.Close(ctx) }, nil
}

// plainLoop is a simple client that posts finished bytes.
func plainLoop(url string) func([]event.Event) error {
	client := &http.Client{Timeout: 10 * time.Second}
	return func(events []event.Event) error {
		for i := range events {
			resp, err := client.Post(url, "application/cloudevents+json", bytes.NewReader(events[i].AppendJSON(nil)))
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
		}
		return nil
	}
}

// timeHook returns the number of events per second of this process' CPU.
func timeHook(write func([]event.Event) error) (float64, error) {
	events := make([]event.Event, hookBatch)
	for i := range events {
		events[i] = event.Event{
			ID: fmt.Sprintf("%032x", i), Type: "io.deltarouter.updated", Source: "/clusters/bench/sources/pods", Subject: "default/web-0", Time: time.Now(),
			Data: fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", hookData-8)), Route: "r", K8sUID: "u", K8sResourceVersion: "1",
		}
	}
	if err := write(events); err != nil { // connects
		return 0, err
	}
	began, used, n := time.Now(), cpu(), 0
	for time.Since(began) < hookTime {
		if err := write(events); err != nil {
			return 0, err
		}
		n += len(events)
	}
	return float64(n) / (cpu() - used).Seconds(), nil
}
