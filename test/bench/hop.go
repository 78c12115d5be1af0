package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/natstest"
)

const (
	hopWarm    = 4_000
	hopBurst   = 20_000
	hopBatch   = 200 // as large as those of a route with workers
	hopWriters = 4   // as many as such a route has
	hopTime    = 5   // seconds of a paced run
	hopTick    = time.Millisecond
)

// hop is a leader's sink for workers, three NATS servers and a worker, which are processes of their
// own.
type hop struct {
	dir     string
	servers *natstest.Cluster
	conn    *fleet.Conn
	outbox  *work.Outbox
	sink    *work.Sink
	file    string // the configuration of the workers
	worker  *hopWorker
	end     func()
	sent    int
}

// compareHop measures the passing of deltas from a leader to a worker: the CPU of both for a delta,
// without its handler and its sinks, and the time from the leader's sink to that of the worker.
func compareHop(rounds int) error {
	h, err := newHop(hopRun{Partitions: hopPartitions, Pending: hopPending})
	if err == nil {
		h.worker, err = startHop(h.file)
	}
	if err == nil {
		err = h.measure(rounds)
	}
	return errors.Join(err, h.close())
}

func (h *hop) measure(rounds int) error {
	updates, err := changesOf(200)
	if err != nil {
		return err
	}
	creations := make([]*event.Delta, len(updates))
	for i, d := range updates {
		creations[i] = &event.Delta{Source: d.Source, Op: event.Added, New: d.New, Seen: d.Seen}
	}
	if _, _, err := h.pass(updates, hopWarm, 0); err != nil {
		return err
	}
	sizes(creations[0], updates[0])
	if err := h.idle(rounds); err != nil {
		return err
	}
	fmt.Printf("\n%-46s %10s %10s %10s %10s %10s\n", "a hop to a worker, three servers, CPU in µs", "leader", "worker", "both", "p50 ms", "p99 ms")
	for _, kind := range []struct {
		name   string
		deltas []*event.Delta
		n      int
		rate   int
	}{
		{"added, as fast as possible", creations, hopBurst, 0},
		{"updated, as fast as possible", updates, hopBurst, 0},
		{"added, 1,000/s", creations, 1_000 * hopTime, 1_000},
		{"updated, 1,000/s", updates, 1_000 * hopTime, 1_000},
		{"updated, 2,000/s", updates, 2_000 * hopTime, 2_000},
	} {
		var leader, worker, both, p50, p99 []float64
		for range rounds {
			used, a, err := h.pass(kind.deltas, kind.n, kind.rate)
			if err != nil {
				return err
			}
			ours, theirs := micros(used)/float64(kind.n), micros(a.CPU)/float64(kind.n)
			leader, worker, both = append(leader, ours), append(worker, theirs), append(both, ours+theirs)
			p50, p99 = append(p50, micros(a.P50)/1000), append(p99, micros(a.P99)/1000)
		}
		latency := fmt.Sprintf("%10.1f %10.1f", middle(p50), middle(p99))
		if kind.rate == 0 { // the queue decides
			latency = fmt.Sprintf("%10s %10s", "", "")
		}
		fmt.Printf("%-46s %10.1f %10.1f %10.1f %s\n", kind.name, middle(leader), middle(worker), middle(both), latency)
	}
	return nil
}

// idle prints the CPU of both processes without deltas, which runs with a rate contain, too: the
// clock of pace, the renewal of leases, and the heartbeats of the consumers.
func (h *hop) idle(rounds int) error {
	var leader, worker []float64
	for range rounds {
		ours := cpu()
		before, err := h.worker.sofar()
		if err != nil {
			return err
		}
		tick := time.NewTicker(hopTick)
		for range time.Second * hopTime / hopTick {
			<-tick.C
		}
		tick.Stop()
		after, err := h.worker.sofar()
		if err != nil {
			return err
		}
		leader, worker = append(leader, micros(cpu()-ours)/1000/hopTime), append(worker, micros(after.CPU-before.CPU)/1000/hopTime)
	}
	fmt.Printf("without deltas, CPU in ms per second: leader with the clock of this measurement %.1f, worker %.1f\n", middle(leader), middle(worker))
	return nil
}

// sizes prints the sizes of the messages of deltas.
func sizes(added, updated *event.Delta) {
	size := func(d *event.Delta) int {
		return len(work.NewCodec().Encode(&work.Message{Route: hopRoute, Hash: "h", Key: "k", Delta: d}))
	}
	fmt.Printf("\npods of %d bytes; a message has %d bytes with one state, %d with two\n", len(added.New.JSON()), size(added), size(updated))
}

// newHop starts the servers and the leader.
func newHop(run hopRun) (h *hop, err error) {
	h = &hop{}
	if h.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return h, err
	}
	if h.servers, err = natstest.Launch(h.dir, natstest.Config{Servers: 3, MaxStore: 4 << 30}); err != nil {
		return h, err
	}
	if h.conn, err = connectFleet(context.Background(), "bench", h.servers.URLs()); err != nil {
		return h, err
	}
	if h.file, err = run.config(h.dir, h.servers.URLs()); err != nil {
		return h, err
	}
	cfg, problems := config.Load(h.file, config.Policy{})
	if err := problems.Err(); err != nil {
		return h, err
	}
	h.outbox = work.NewOutbox(work.OutboxConfig{Conn: h.conn, Holder: "bench", Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.outbox.Run(ctx) })
	h.end = func() { cancel(); running.Wait() }
	r := cfg.Routes[0]
	hash, err := work.HashOf(cfg, r)
	if err != nil {
		return h, err
	}
	h.sink = h.outbox.Sink(work.Route{ID: r.ID, Hash: hash, Partitions: r.Workers.Partitions})
	h.outbox.Use([]*work.Sink{h.sink})
	return h, nil
}

func (h *hop) close() (err error) {
	if h.worker != nil {
		h.worker.stop()
	}
	if h.end != nil {
		h.end()
	}
	if h.conn != nil {
		err = h.conn.Close()
	}
	if h.servers != nil {
		h.servers.Close()
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

// pass passes n deltas to the worker: rate per second, or in full batches as fast as possible. It
// returns the CPU of this process.
func (h *hop) pass(deltas []*event.Delta, n, rate int) (used time.Duration, a arrival, err error) {
	if err := h.worker.expect(n); err != nil {
		return 0, a, err
	}
	events := h.events(deltas, n)
	before := cpu()
	if rate > 0 {
		err = h.pace(events, rate)
	} else {
		err = h.burst(events)
	}
	used = cpu() - before
	if err != nil {
		return 0, a, err
	}
	a, err = h.worker.arrived()
	return used, a, err
}

// events makes the events of the deltas, as the route of the leader does before it writes them.
func (h *hop) events(deltas []*event.Delta, n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		d := *deltas[i%len(deltas)]
		h.sent++
		events[i] = event.New(&d, hopRoute, 0, nil)
		events[i].ID += strconv.Itoa(h.sent)
	}
	return events
}

// burst writes full batches, as a route with a backlog does.
func (h *hop) burst(events []event.Event) error {
	batches := make(chan []event.Event)
	ended := h.writers(batches)
	for batch := range slices.Chunk(events, hopBatch) {
		batches <- batch
	}
	close(batches)
	return ended()
}

// pace writes the events that are due at each tick, as soon as a writer is free.
func (h *hop) pace(events []event.Event, rate int) error {
	batches := make(chan []event.Event)
	ended := h.writers(batches)
	tick := time.NewTicker(hopTick)
	defer tick.Stop()
	began, due, sent := time.Now(), 0, 0
	for sent < len(events) {
		out := batches
		if due == sent {
			out = nil
		}
		next := events[sent:min(due, sent+hopBatch)]
		select {
		case <-tick.C:
			now := time.Now()
			soon := min(int(now.Sub(began).Seconds()*float64(rate)), len(events))
			for ; due < soon; due++ {
				events[due].Of.Seen = now
			}
		case out <- next:
			sent += len(next)
		}
	}
	close(batches)
	return ended()
}

// writers writes batches at the same time, until the channel is closed.
func (h *hop) writers(batches <-chan []event.Event) (ended func() error) {
	errs := make([]error, hopWriters)
	var all sync.WaitGroup
	for w := range hopWriters {
		all.Go(func() {
			for batch := range batches {
				errs[w] = errors.Join(errs[w], errors.Join(h.sink.Write(context.Background(), batch)...))
			}
		})
	}
	return func() error { all.Wait(); return errors.Join(errs...) }
}
