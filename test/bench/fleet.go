package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/internal/fleet/replica"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/natstest"
)

const (
	fleetPods   = 20_000
	fleetCuts   = 60 // of each measurement
	fleetCut    = 1_000
	fleetLagCut = 20 // cuts of each size, one after the other
)

// compareReplication measures the replication of the state file over three NATS servers, which are
// processes of their own: the CPU of a cut for each changed pod without and with its publication,
// and that of a standby that applies it. Then the time from the end of a cut until the standby has
// it, and the time to make a standby without a file.
func compareReplication(rounds int) (err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	servers, err := natstest.Launch(dir, natstest.Config{Servers: 3, MaxStore: 16 << 30})
	if err != nil {
		return err
	}
	defer servers.Close()
	var without, with, ratios []float64
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d: %d cuts of %d pods, without and with publication\n", round+1, fleetCuts, fleetCut)
		var cost [2]float64
		for i, urls := range [][]string{nil, servers.URLs()} {
			r, err := newReplication(filepath.Join(dir, fmt.Sprint(round, "-", i)), fmt.Sprint("bench", round), urls)
			if err != nil {
				return err
			}
			cost[i], err = r.cpuPerPod()
			if err = errors.Join(err, r.close()); err != nil {
				return err
			}
		}
		without, with, ratios = append(without, cost[0]), append(with, cost[1]), append(ratios, cost[1]/cost[0])
	}
	fmt.Printf("\nCPU of a cut per changed pod: %.1f µs, with publication %.1f µs (ratio %.2f)\n", middle(without), middle(with), middle(ratios))
	r, err := newReplication(filepath.Join(dir, "lag"), "lag", servers.URLs())
	if err != nil {
		return err
	}
	return errors.Join(r.standby(filepath.Join(dir, "standby")), r.close())
}

// replication is a leader.
type replication struct {
	conn    *fleet.Conn // nil: nothing is published
	db      *checkpoint.DB
	shipper *replica.Shipper
	end     context.CancelFunc
	ended   chan error
	pods    *template
	about   *event.Resource
	version int
}

func newReplication(dir, name string, urls []string) (r *replication, err error) {
	text, err := json.Marshal(examplePod())
	if err != nil {
		return nil, err
	}
	r = &replication{pods: newTemplate(text), about: &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}}
	cfg := checkpoint.Config{Path: filepath.Join(dir, "state.db")}
	if len(urls) == 0 {
		r.db, err = checkpoint.Open(cfg)
		return r, err
	}
	ctx, log := context.Background(), slog.New(slog.DiscardHandler)
	if r.conn, err = connectFleet(ctx, name, urls); err != nil {
		return nil, err
	}
	publisher, before, err := fence.Open(ctx, fence.Config{Conn: r.conn.NATS, Stream: r.conn.Names.Cuts(), Lead: r.conn.Names.CutsLead(), Holder: "bench", Log: log})
	if err != nil {
		return nil, err
	}
	r.shipper = replica.NewShipper(replica.ShipperConfig{Conn: r.conn, Log: log})
	cfg.Shipped, cfg.Term = r.shipper.Ship, publisher.Term()
	if r.db, err = checkpoint.Open(cfg); err != nil {
		return nil, err
	}
	ctx, r.end = context.WithCancel(ctx)
	r.ended = make(chan error, 1)
	go func() { r.ended <- r.shipper.Run(ctx, r.db, publisher, before) }()
	return r, nil
}

func connectFleet(ctx context.Context, name string, urls []string) (*fleet.Conn, error) {
	cfg := &config.Fleet{Name: name, Replicas: 3, NATS: config.NATS{Servers: urls}}
	conn, err := fleet.Connect(ctx, cfg, "bench", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return conn, errors.Join(conn.Ready(ctx), conn.Ensure(ctx))
}

func (r *replication) close() (err error) {
	if r.end != nil {
		r.end()
		err = <-r.ended
	}
	err = errors.Join(err, r.db.Close())
	if r.conn != nil {
		err = errors.Join(err, r.conn.Close())
	}
	return err
}

// cut writes a cut of n pods.
func (r *replication) cut(n int) error {
	cut := checkpoint.WatchCut{ID: "pods", Applied: "1"}
	for range n {
		r.version++
		o, err := event.ParseObject(r.about, string(r.pods.fill(r.version*7919%fleetPods, r.version)))
		if err != nil {
			return err
		}
		cut.Put = append(cut.Put, o)
	}
	return r.db.Write(checkpoint.Cut{Watches: []checkpoint.WatchCut{cut}})
}

func (r *replication) flush() error {
	if r.shipper == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.shipper.Flush(ctx)
}

// cpuPerPod returns the CPU of cuts per pod in µs. Making the pods is a part of it.
func (r *replication) cpuPerPod() (float64, error) {
	for range fleetPods / fleetCut { // the first snapshot is made meanwhile
		if err := r.cut(fleetCut); err != nil {
			return 0, err
		}
	}
	if err := r.flush(); err != nil {
		return 0, err
	}
	used := cpu()
	for range fleetCuts {
		if err := r.cut(fleetCut); err != nil {
			return 0, err
		}
	}
	if err := r.flush(); err != nil {
		return 0, err
	}
	return micros(cpu()-used) / fleetCuts / fleetCut, nil
}

// standby measures a standby that follows the leader.
func (r *replication) standby(dir string) error {
	for range fleetPods / fleetCut {
		if err := r.cut(fleetCut); err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil {
		return err
	}
	path := filepath.Join(dir, "state.db")
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	if err != nil {
		return err
	}
	f := replica.NewFollower(replica.FollowerConfig{Conn: r.conn, DB: db, Path: path, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	begun := time.Now()
	go func() { defer close(ended); f.Run(ctx) }()
	err = r.lags(db, begun)
	cancel()
	<-ended
	return errors.Join(err, db.Close())
}

func (r *replication) lags(db *checkpoint.DB, begun time.Time) error {
	if err := r.reached(db); err != nil {
		return err
	}
	fmt.Printf("a standby without a file has %d pods (%d MB) after %v\n", fleetPods, r.db.Size()>>20, time.Since(begun).Round(time.Millisecond))
	for _, n := range []int{50, fleetCut} {
		var times []float64
		for range fleetLagCut {
			if err := r.cut(n); err != nil {
				return err
			}
			written := time.Now()
			if err := r.reached(db); err != nil {
				return err
			}
			times = append(times, float64(time.Since(written))/float64(time.Millisecond))
		}
		fmt.Printf("after a cut of %d pods the standby has it in %.0f ms (median of %d)\n", n, middle(times), fleetLagCut)
	}
	used := cpu()
	for range fleetCuts {
		if err := r.cut(fleetCut); err != nil {
			return err
		}
	}
	if err := r.reached(db); err != nil {
		return err
	}
	fmt.Printf("CPU of leader and standby in one process per changed pod: %.1f µs\n", micros(cpu()-used)/fleetCuts/fleetCut)
	return nil
}

// reached waits until the standby has the leader's position.
func (r *replication) reached(db *checkpoint.DB) error {
	for deadline := time.Now().Add(patience); db.Position() != r.db.Position(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the standby has %v in place of %v", db.Position(), r.db.Position())
		}
	}
	return nil
}
