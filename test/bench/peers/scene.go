package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// size has the numbers of a comparison. The page of a short run would say nothing.
type size struct {
	objects   int           // that exist at the start
	many      int           // in the second half of the memory at rest
	rate      int           // changes per second
	rateFor   time.Duration // of the cost
	few       int           // objects that are made, changed and deleted in a fault
	downFor   time.Duration // of the receiver
	beforeAPI int           // changes before the restart of the API server
	afterAPI  int           // at once after it
	patience  time.Duration // until a change counts as lost
	downtime  time.Duration // of a killed program, at least
	rssAfter  time.Duration // a start
	rest      []time.Duration
}

func fullSize() size {
	return size{
		objects: 5000, many: 20_000, rate: 200, rateFor: time.Minute, few: 100, downFor: 20 * time.Second, beforeAPI: 200, afterAPI: 500,
		patience: time.Minute, downtime: 5 * time.Second, rssAfter: 10 * time.Second,
		rest: []time.Duration{20 * time.Second, 2 * time.Minute, 4 * time.Minute, 6 * time.Minute},
	}
}

// shortSize is for a try of the comparison in minutes.
func shortSize() size {
	return size{
		objects: 300, many: 600, rate: 200, rateFor: 3 * time.Second, few: 20, downFor: 3 * time.Second, beforeAPI: 50, afterAPI: 100,
		patience: 5 * time.Second, downtime: time.Second, rssAfter: 3 * time.Second, rest: []time.Duration{3 * time.Second, 6 * time.Second},
	}
}

const (
	probeName  = "probe"
	probeEvery = 200 * time.Millisecond
	probeMost  = 2 * time.Minute
	quiet      = time.Second
	settle     = time.Second
)

// contender is a program with one kind of objects.
type contender struct {
	*program

	work *work
}

// label names the contender in the tables.
func (c contender) label() string {
	if !c.work.updated {
		return c.name + ", " + c.work.name
	}
	return c.name
}

// scene is a program that runs beside a cluster of its own and the receiver.
type scene struct {
	*cluster
	*receiver
	*processes

	dir   string
	work  *work
	size  size
	ready time.Duration // from the start of the program to its first POST about a new change
	began time.Time
}

// open starts a cluster, makes the objects, starts the program and waits until it tells changes.
func (c *comparison) open(ctx context.Context, who contender, objects int) (*scene, error) {
	dir, err := os.MkdirTemp("", "peers-")
	if err != nil {
		return nil, err
	}
	s := &scene{dir: dir, work: who.work, size: c.size, receiver: startReceiver(who.program)}
	if err := c.set(ctx, s, who, objects); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// set is open for a new scene.
func (c *comparison) set(ctx context.Context, s *scene, who contender, objects int) (err error) {
	if s.cluster, err = startCluster(ctx, c.sandbox, filepath.Join(s.dir, "cluster")); err != nil {
		return err
	}
	if _, err := s.batch(ctx, s.ledger, 0, s.made(objectName, 0, objects)); err != nil {
		return err
	}
	home := &place{
		dir: filepath.Join(s.dir, "program"), kubeconfig: s.kubeconfig(), config: s.config, receiver: s.http.URL, work: who.work, binary: c.binary,
	}
	if err := os.Mkdir(home.dir, 0o700); err != nil {
		return err
	}
	commands, err := who.setUp(ctx, home)
	if err != nil {
		return err
	}
	c.commands[who.name] = commandLine(commands, home)
	s.processes = &processes{place: home, commands: commands}
	return s.begin(ctx, true)
}

// begin starts the program. With probe, it changes an object again and again until the program
// tells it, and then waits until nothing more comes.
func (s *scene) begin(ctx context.Context, probe bool) error {
	s.began = time.Now()
	if err := s.processes.start(ctx); err != nil || !probe {
		return err
	}
	var probes []change
	for i := 0; len(probes) == 0 || s.lost(probes) == len(probes); i++ {
		made, err := s.batch(ctx, s.ledger, 0, s.probe(i))
		if err != nil {
			return err
		}
		probes = append(probes, made...)
		if err := errors.Join(sleep(ctx, probeEvery), s.processes.problem()); err != nil {
			return err
		}
		if time.Since(s.began) > probeMost {
			return fmt.Errorf("no change was told in %v:\n%s", probeMost, s.logs())
		}
	}
	s.ready = time.Since(s.began)
	for s.quietFor() < quiet {
		if err := sleep(ctx, probeEvery); err != nil {
			return err
		}
	}
	return nil
}

// probe returns the i-th write of the object that shows when a program is ready.
func (s *scene) probe(i int) []write {
	switch {
	case !s.work.updated:
		return []write{{object: fmt.Sprintf("%s-%d", probeName, i), do: s.work.create}}
	case i == 0:
		return []write{{object: probeName, do: s.work.create}}
	}
	return []write{{object: probeName, do: s.work.update}}
}

// end ends everything, and removes the files.
func (s *scene) end() {
	if s.processes != nil {
		s.signal(syscall.SIGTERM)
	}
	s.http.CloseClientConnections()
	s.http.Close()
	if s.cluster != nil {
		s.cluster.close()
	}
	_ = os.RemoveAll(s.dir)
}

// check returns what would make the figures wrong.
func (s *scene) check() error { return errors.Join(s.receiver.problem(), s.processes.problem()) }

// objectName and laterName are the names of the objects that exist at the start, and of others.
func objectName(i int) string { return fmt.Sprintf("object-%06d", i) }
func laterName(i int) string  { return fmt.Sprintf("later-%06d", i) }

// made and updated are writes of the objects from first to last-1.
func (s *scene) made(name func(int) string, first, last int) (all []write) {
	for i := first; i < last; i++ {
		all = append(all, write{object: name(i), do: s.work.create})
	}
	return all
}

// updated begins again with the first object after some of them.
func (s *scene) updated(first, last, of int) (all []write) {
	for i := first; i < last; i++ {
		all = append(all, write{object: objectName(i % of), do: s.work.update})
	}
	return all
}

// changed are n writes: updates of some of the objects, one after the other, or new Events from the
// number from on.
func (s *scene) changed(from, n, of int) []write {
	if s.work.updated {
		return s.updated(from, from+n, of)
	}
	return s.made(laterName, from, from+n)
}
