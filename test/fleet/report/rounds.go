package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/fleet/ledger"
)

// outcome is the result of one end of the leader.
type outcome struct {
	takeover time.Duration // until another member delivers
	rate     float64       // deltas per second of all routes before
	again    int           // duplicates of the routes of the leader
	worked   int           // duplicates of the route of the worker
	lost     int           // routes that lack deltas
	leases   int           // partitions that the worker lost, as on a machine that stands still
	deposed  int           // leaders that lost the Lease
}

// show prints the outcomes of all ends of one kind.
func show(what string, all []outcome) {
	var times []time.Duration
	var rates []float64
	var again, worked, lost, leases, deposed int
	for _, o := range all {
		leases, deposed = leases+o.leases, deposed+o.deposed
		times, rates = append(times, o.takeover), append(rates, o.rate)
		again, worked, lost = again+o.again, worked+o.worked, lost+o.lost
	}
	if len(all) == 0 {
		return
	}
	slices.Sort(times)
	slices.Sort(rates)
	at := func(percent int) time.Duration {
		return times[min(len(times)*percent/100, len(times)-1)].Round(10 * time.Millisecond)
	}
	fmt.Printf(layout, what, len(all), fmt.Sprintf("%.0f", rates[len(rates)/2]), at(50), at(99), at(100), again, worked, lost)
	if leases+deposed > 0 {
		fmt.Printf("  meanwhile the worker lost %d partitions and %d leaders were deposed, for the reasons in their logs: that repeats deltas\n", leases, deposed)
	}
}

// layout is that of a line of the result.
const layout = "%-26v %6v %9v %8v %8v %8v %11v %11v %5v\n"

// round changes objects, ends the leader, and waits until each change is delivered and the process
// is a standby again.
func (r *report) round(ctx context.Context, end func(*fleet.Node) error) (o outcome, err error) {
	leader, _, err := r.roles(ctx)
	if err != nil {
		return o, err
	}
	r.rounded++
	deposed, leases := r.fleet.Lost()
	r.receiver.Clear()
	h := &ledger.History{}
	c := &fleet.Changes{Maps: r.maps, History: h, Prefix: fmt.Sprintf("o-%d", r.rounded), Writers: r.writers, Pace: r.pace, Seed: uint64(r.rounded)} //nolint:gosec // small
	stop := c.Start(ctx)
	began := time.Now()
	time.Sleep(r.load)
	o.rate = float64(h.Len()*(r.routes+1)) / time.Since(began).Seconds()
	ended := time.Now()
	err = end(leader)
	if err == nil {
		o.takeover, err = r.takeover(ctx, leader, ended)
	}
	time.Sleep(r.load)
	if err = errors.Join(err, stop()); err != nil {
		return o, err
	}
	if err := c.Finish(ctx); err != nil {
		return o, err
	}
	if err := r.settle(ctx, h, &o); err != nil {
		return o, err
	}
	o.deposed, o.leases = r.fleet.Lost()
	o.deposed, o.leases = o.deposed-deposed, o.leases-leases
	return o, leader.Launch()
}

// takeover waits for a delivery by another member.
func (r *report) takeover(ctx context.Context, former *fleet.Node, ended time.Time) (took time.Duration, err error) {
	err = r.wait(ctx, "a delivery by the other member", func() error {
		for _, d := range r.receiver.Of("local-0") {
			if d.By != former.Name {
				took = d.At.Sub(ended)
				return nil
			}
		}
		return errors.New("none")
	})
	return took, err
}

// settle waits until nothing is missing, and counts what came again.
func (r *report) settle(ctx context.Context, h *ledger.History, o *outcome) error {
	routes := append(local(r.routes), workRoute)
	missing := map[string][]string{}
	err := r.wait(ctx, "the deliveries", func() error {
		for _, route := range routes {
			if missing[route] = h.Missing(r.receiver.Of(route), ledger.Rule{}); len(missing[route]) > 0 {
				return fmt.Errorf("%s: %s", route, strings.Join(missing[route], ", "))
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		o.lost++
		fmt.Println(err)
	}
	for _, route := range routes {
		own := slices.DeleteFunc(r.receiver.Of(route), func(d ledger.Delivery) bool { return !h.Knows(d.UID) })
		again, problems := h.Check(own, ledger.Rule{Duplicates: h.Len(), Returns: 1})
		if route == workRoute {
			o.worked += again
		} else {
			o.again += again
		}
		for _, p := range problems {
			fmt.Println(route+":", p)
		}
	}
	return nil
}

// roles waits until one member leads and the other one has all of its state.
func (r *report) roles(ctx context.Context) (leader, standby *fleet.Node, err error) {
	err = r.wait(ctx, "a leader and a standby", func() (err error) {
		if leader, err = r.fleet.Leader(ctx, r.sandbox.Dynamic()); err != nil {
			return err
		}
		for _, n := range r.fleet.Members {
			if n != leader {
				standby = n
			}
		}
		return fleet.Follows(standby)
	})
	return leader, standby, err
}

// memory prints the resident memory of both members.
func (r *report) memory(ctx context.Context) error {
	leader, standby, err := r.roles(ctx)
	if err != nil {
		return err
	}
	const series, mega = "process_resident_memory_bytes", 1e6
	fmt.Printf("resident memory with %d objects of %d bytes: leader %.0f MB, standby %.0f MB, worker %.0f MB\n",
		r.objects, filling, leader.Metric(series)/mega, standby.Metric(series)/mega, r.fleet.Workers[0].Metric(series)/mega)
	return nil
}

// wait waits until a condition holds.
func (r *report) wait(ctx context.Context, what string, problem func() error) error {
	const patience, poll = 2 * time.Minute, 25 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := problem()
		if err == nil {
			return nil
		}
		for _, n := range r.fleet.Nodes() {
			if n.Crashed() {
				return fmt.Errorf("%s ended with code %d:\n%s", n.Name, n.Code(), n.Tail())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, err)
		}
	}
}
