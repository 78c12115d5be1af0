package main

import (
	"cmp"
	"slices"

	"github.com/deltarouter/deltarouter/test/spine/trace"
)

// node is a call, or a lock that is taken.
type node struct {
	dir, name string
	kind      kind
	times     int // in a row
	children  []*node
	at        int // place in the order of the recording
}

// kind is the kind of a node.
type kind byte

// The kinds of nodes, with their marks in a recording.
const (
	called  kind = '+' // a function that began in the window
	running kind = '~' // a function that began before the window, and waits for deltas in a loop
	locks   kind = '!' // a lock
)

// goroutine is a goroutine that the delta passes. Its roots are the outermost functions of ours: of
// most goroutines there is one.
type goroutine struct{ roots []*node }

// build makes the trees of the delta from the records, in the order in which the goroutines begin
// to work on it. It leaves out the calls that the idle router makes too, from the same running
// functions.
func build(s *sources, w *windows) []goroutine {
	background := make(map[edge]bool)
	for _, g := range trees(s, w.idle) {
		for _, root := range g.roots {
			root.edges(func(e edge) { background[e] = true })
		}
	}
	var way []goroutine
	for _, g := range trees(s, w.delta) {
		g.roots = slices.DeleteFunc(g.roots, func(n *node) bool { return !n.prune(background) })
		if len(g.roots) > 0 {
			way = append(way, *g)
		}
	}
	slices.SortFunc(way, func(a, b goroutine) int { return cmp.Compare(a.roots[0].begun(), b.roots[0].begun()) })
	for i := range way {
		way[i].roots = fold(way[i].roots)
	}
	return way
}

// begun returns the place of the first node that is no running function.
func (n *node) begun() int {
	for n.kind == running && len(n.children) > 0 {
		n = n.children[0]
	}
	return n.at
}

// edge is a call of a function by another one of ours.
type edge struct{ from, to call }

// call is a node without its position.
type call struct {
	dir, name string
	kind      kind
}

func (n *node) call() call { return call{n.dir, n.name, n.kind} }

// edges calls add for each edge below the node.
func (n *node) edges(add func(edge)) {
	for _, c := range n.children {
		add(edge{n.call(), c.call()})
		c.edges(add)
	}
}

// prune removes the calls by running functions that have only background below them, and reports
// whether something is left.
func (n *node) prune(background map[edge]bool) (left bool) {
	if n.kind != running {
		return true
	}
	n.children = slices.DeleteFunc(n.children, func(c *node) bool {
		if c.kind == running {
			return !c.prune(background)
		}
		known := background[edge{n.call(), c.call()}]
		c.edges(func(e edge) { known = known && background[e] })
		return known
	})
	return len(n.children) > 0
}

// trees makes a tree for each goroutine in the records.
func trees(s *sources, records []trace.Record) []*goroutine {
	var all []*goroutine
	open := make(map[int]*branch)
	for i, r := range records {
		b := open[r.Goroutine]
		if b == nil {
			b = &branch{goroutine: &goroutine{}}
			open[r.Goroutine] = b
			all = append(all, b.goroutine)
		}
		b.add(s, i, r)
	}
	return all
}

// branch is the tree of a goroutine with the calls that have not ended.
type branch struct {
	*goroutine

	running []*node // the functions that began before the window
	stack   []*node
}

func (b *branch) add(s *sources, at int, r trace.Record) {
	switch r.Kind {
	case trace.Left:
		if len(b.stack) > 0 {
			b.stack = b.stack[:len(b.stack)-1]
		}
	case trace.Locking:
		l := s.locks[r.ID]
		b.enclose(s, r)
		b.attach(&node{dir: l.dir, name: l.name, kind: locks, times: 1, at: at})
	case trace.Entered:
		f := s.functions[r.ID]
		b.enclose(s, r)
		n := &node{dir: f.dir, name: f.name, kind: called, times: 1, at: at}
		if from := b.caller(s, r); from != nil {
			from.children = append(from.children, n)
		} else {
			b.attach(n)
		}
		b.stack = append(b.stack, n)
	}
}

// enclose sets the running functions of a call that no call of the window encloses.
func (b *branch) enclose(s *sources, r trace.Record) {
	if len(b.stack) > 0 {
		return
	}
	var now []*node
	for _, frame := range r.Running {
		at := s.at(frame.File, frame.Line)
		if at < 0 {
			continue
		}
		f := s.functions[at]
		n := &node{dir: f.dir, name: f.name, kind: running, times: 1}
		// A stack that is the former one so far continues its nodes.
		if i := len(now); i < len(b.running) && b.running[i].call() == n.call() {
			now = append(now, b.running[i])
			continue
		}
		b.running = b.running[:min(len(b.running), len(now))]
		if len(now) > 0 {
			now[len(now)-1].children = append(now[len(now)-1].children, n)
		} else {
			b.roots = append(b.roots, n)
		}
		now = append(now, n)
	}
	b.running = now
}

// caller returns the open call of the function that calls the one of a record; nil: that function
// is not one of ours, such as a library that calls us back.
func (b *branch) caller(s *sources, r trace.Record) *node {
	at := s.at(r.Caller.File, r.Caller.Line)
	if at < 0 {
		return nil
	}
	f := s.functions[at]
	for _, n := range slices.Backward(b.stack) {
		if n.dir == f.dir && n.name == f.name {
			return n
		}
	}
	return nil
}

// attach adds a node to the innermost function.
func (b *branch) attach(n *node) {
	switch {
	case len(b.stack) > 0:
		top := b.stack[len(b.stack)-1]
		top.children = append(top.children, n)
	case len(b.running) > 0:
		top := b.running[len(b.running)-1]
		top.children = append(top.children, n)
	default:
		b.roots = append(b.roots, n)
	}
}

// fold merges equal calls in a row. Of a call that stays within its package and takes no lock, it
// keeps the functions below it, but not who calls whom: the way does not depend on how often a
// scanner of JSON calls itself.
func fold(nodes []*node) []*node {
	var folded []*node
	for _, n := range nodes {
		n.children = fold(n.children)
		if within(n.dir, n.children) {
			n.children = flat(n.children, make(map[string]bool))
		}
		if last := len(folded) - 1; last >= 0 && n.kind != running && folded[last].equal(n) {
			folded[last].times += n.times
			continue
		}
		folded = append(folded, n)
	}
	return folded
}

// within reports whether all nodes are functions of one package.
func within(dir string, nodes []*node) bool {
	for _, n := range nodes {
		if n.dir != dir || n.kind != called || !within(dir, n.children) {
			return false
		}
	}
	return true
}

// flat returns each function in the trees once, in the order of their first calls.
func flat(nodes []*node, known map[string]bool) (all []*node) {
	for _, n := range nodes {
		if !known[n.name] {
			known[n.name] = true
			all = append(all, &node{dir: n.dir, name: n.name, kind: n.kind, times: 1})
		}
		all = append(all, flat(n.children, known)...)
	}
	return all
}

// equal reports whether two nodes have the same calls below them.
func (n *node) equal(other *node) bool {
	return n.call() == other.call() && slices.EqualFunc(n.children, other.children, func(a, b *node) bool {
		return a.times == b.times && a.equal(b)
	})
}
