package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/fleet/ledger"
)

// step is an event of the demonstration. do disturbs the fleet, and returns when all runs again;
// said describes what happened.
type step struct {
	title string
	loses int // processes whose deliveries may come again
	do    func(ctx context.Context, d *demo) (said string, err error)
}

func steps() []step {
	return []step{
		{"Everything runs", 0, func(ctx context.Context, d *demo) (string, error) { return "", d.flow(ctx, 200) }},
		{"SIGKILL of a worker", 1, killWorker},
		{"SIGTERM of a worker: it drains and frees its partitions", 0, stopWorker},
		{"SIGKILL of a NATS server", 0, killServer},
		{"SIGKILL of the leader (lease: 6s)", 1, killLeader},
		{"SIGTERM of the leader: it hands over", 0, stopLeader},
		{"SIGSTOP of the leader until the standby leads", 1, pauseLeader},
		{"SIGKILL of the standby, which comes back without its state", 0, killStandby},
	}
}

// flow waits until n more changes were delivered by the leader.
func (d *demo) flow(ctx context.Context, n int) error {
	before := len(d.receiver.Of("local"))
	return d.wait(ctx, "deliveries", func() error {
		if got := len(d.receiver.Of("local")) - before; got < n {
			return fmt.Errorf("%d deliveries, want %d", got, n)
		}
		return nil
	})
}

func killWorker(ctx context.Context, d *demo) (string, error) {
	n := d.fleet.Workers[1]
	n.Kill()
	if err := d.flow(ctx, 300); err != nil {
		return "", err
	}
	return n.Name + " was killed, and started again", n.Launch()
}

func stopWorker(ctx context.Context, d *demo) (string, error) {
	n := d.fleet.Workers[2]
	began := time.Now()
	if err := n.Terminate(time.Minute); err != nil {
		return "", err
	}
	said := fmt.Sprintf("%s ended after %v with code %d, and was started again", n.Name, short(time.Since(began)), n.Code())
	if err := d.flow(ctx, 100); err != nil {
		return "", err
	}
	return said, n.Launch()
}

func killServer(ctx context.Context, d *demo) (string, error) {
	s := d.nats.Servers[0]
	s.Kill()
	if err := d.flow(ctx, 200); err != nil {
		return "", err
	}
	if err := s.Restart(); err != nil {
		return "", err
	}
	return s.Name + " was killed, and started again", d.nats.Wait()
}

// follower waits until another member leads, and describes it.
func (d *demo) follower(ctx context.Context, former *fleet.Node, began time.Time) (string, error) {
	var leader *fleet.Node
	err := d.wait(ctx, "another leader", func() (err error) {
		if leader, err = d.fleet.Leader(ctx, d.sandbox.Dynamic()); err == nil && leader == former {
			err = errors.New(leader.Name + " leads")
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s led; %s leads after %v", former.Name, leader.Name, short(time.Since(began))), nil
}

func killLeader(ctx context.Context, d *demo) (string, error) {
	if _, err := d.standby(ctx); err != nil {
		return "", err
	}
	n, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	began := time.Now()
	n.Kill()
	said, err := d.follower(ctx, n, began)
	return said, errors.Join(err, n.Launch())
}

func stopLeader(ctx context.Context, d *demo) (string, error) {
	if _, err := d.standby(ctx); err != nil {
		return "", err
	}
	n, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	began := time.Now()
	if err := n.Terminate(time.Minute); err != nil {
		return "", err
	}
	said, err := d.follower(ctx, n, began)
	return said, errors.Join(err, n.Launch())
}

func pauseLeader(ctx context.Context, d *demo) (string, error) {
	if _, err := d.standby(ctx); err != nil {
		return "", err
	}
	n, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	began := time.Now()
	n.Pause()
	said, err := d.follower(ctx, n, began)
	if err != nil {
		return "", err
	}
	n.Continue()
	_, err = d.standby(ctx)
	return said + "; " + n.Name + " was continued and follows", err
}

func killStandby(ctx context.Context, d *demo) (string, error) {
	n, err := d.standby(ctx)
	if err != nil {
		return "", err
	}
	n.Kill()
	if err := n.Forget(); err != nil {
		return "", err
	}
	began := time.Now()
	if err := n.Launch(); err != nil {
		return "", err
	}
	_, err = d.standby(ctx)
	return fmt.Sprintf("%s has the state of the leader %v after its start", n.Name, short(time.Since(began))), err
}

func short(t time.Duration) time.Duration { return t.Round(10 * time.Millisecond) }

// step runs one step while objects change, waits until each change is delivered, and prints the
// account.
func (d *demo) step(ctx context.Context, s step) error {
	d.steps++
	h := &ledger.History{}
	c := &fleet.Changes{Maps: d.maps, History: h, Prefix: fmt.Sprintf("o-%d", d.steps), Writers: 4, Pace: 20 * time.Millisecond}
	leaders, partitions := d.fleet.Lost()
	stop := c.Start(ctx)
	if err := d.flow(ctx, 50); err != nil {
		return errors.Join(err, stop())
	}
	said, err := s.do(ctx, d)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if err := c.Finish(ctx); err != nil {
		return err
	}
	lost := map[string][]string{}
	err = d.wait(ctx, "the deliveries", func() error {
		for _, route := range []string{"work", "local"} {
			if lost[route] = h.Missing(d.receiver.Of(route), ledger.Rule{}); len(lost[route]) > 0 {
				return fmt.Errorf("%s: %s", route, strings.Join(lost[route], ", "))
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	deposed, gone := d.fleet.Lost()
	if deposed, gone = deposed-leaders, gone-partitions; deposed+gone > 0 {
		said = strings.TrimPrefix(fmt.Sprintf("%s; %d partitions of workers and %d leaders could not renew their leases in time, so others took over", said, gone, deposed), "; ")
		s.loses += deposed + gone
	}
	d.print(s, said, h, lost)
	return err
}

// print prints the account of a step.
func (d *demo) print(s step, said string, h *ledger.History, lost map[string][]string) {
	fmt.Fprintf(d.out, "\n%d. %s\n", d.steps, s.title)
	if said != "" {
		fmt.Fprintf(d.out, "   %s\n", said)
	}
	all := d.receiver.Clear()
	for _, route := range []string{"work", "local"} {
		by := map[string]int{}
		own := slices.DeleteFunc(all[route], func(v ledger.Delivery) bool { return !h.Knows(v.UID) })
		for _, v := range own {
			by[v.By]++
		}
		duplicates, problems := h.Check(own, ledger.Rule{Duplicates: s.loses * h.Len(), Returns: s.loses})
		var shares []string
		for _, name := range slices.Sorted(maps.Keys(by)) {
			shares = append(shares, fmt.Sprintf("%s %d", name, by[name]))
		}
		fmt.Fprintf(d.out, "   route %-5s  %4d changes, %4d deliveries (%s), %d lost, %d came again, the slowest after %v\n",
			route, h.Len(), len(own), strings.Join(shares, ", "), len(lost[route]), duplicates, short(h.Slowest(own)))
		for _, p := range problems {
			fmt.Fprintf(d.out, "   PROBLEM: %s\n", p)
		}
		d.failed = d.failed || len(problems)+len(lost[route]) > 0
	}
}
