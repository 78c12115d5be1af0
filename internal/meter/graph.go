package meter

import (
	"bytes"
	"slices"
)

// Functions are rewritten callees first, so that the properties of a called function are known,
// unless the two call each other. For the order, graph reads which functions call which.
//
// A node is a function, or behind these a type: all functions that call_indirect with the type may
// call. A call that an unreachable follows, as of a function that panics, is cold and no edge: the
// guest is checked before it, see coldFunction. So every cycle of calls has a chosen node, or a
// cold call.
type graph struct {
	m       *module
	bodies  []reader // of the defined functions
	edges   [][]int32
	types   []int // for each type: the first one that is equal
	targets map[int][]int
	order   []int // of the nodes, callees first
	// for each node: it was chosen. A guest must pause, and its stack must be counted, once in each
	// cycle of calls. The chosen functions and those that call by chosen types do so.
	chosen []bool
}

// fact holds the properties of a function, or of all functions of a type, for its callers.
type fact struct {
	host   bool  // it is imported, or one of them is
	pauses bool  // it may pause
	owed   int64 // if so: the most that it and the functions below have paid before a call
	stack  int64 // the bytes of its frame and of the frames below, if it does not count them itself
	head   int64 // the largest gap in it before its first pause; 0: it pauses at its entry
	passes bool  // it may return without a pause
	whole  int64 // if so: the largest gap in it
	tail   int64 // the largest gap at its return since its last pause
}

// join adds the properties of another function to those of a type.
func (t *fact) join(f *fact) {
	t.stack, t.head, t.passes = max(t.stack, f.stack), max(t.head, f.head), t.passes || f.passes
	t.host, t.pauses = t.host || f.host, t.pauses || f.pauses
	t.owed = max(t.owed, f.owed)
	t.whole, t.tail = max(t.whole, f.whole), max(t.tail, f.tail)
}

// newGraph reads the calls of all functions.
func newGraph(m *module, bodies []reader) *graph {
	g := &graph{m: m, bodies: bodies, edges: make([][]int32, len(m.funcs)+len(m.types)), targets: make(map[int][]int)}
	first := make(map[string]int)
	for i, t := range m.types {
		key := string(t.params) + "\x00" + string(t.results)
		if _, ok := first[key]; !ok {
			first[key] = i
		}
		g.types = append(g.types, first[key])
	}
	for function, declared := range m.declared {
		if declared {
			typ := g.types[m.funcs[function]]
			g.targets[typ] = append(g.targets[typ], function)
			g.edge(len(m.funcs)+typ, function)
		}
	}
	for i, b := range bodies {
		g.read(body{reader: b, m: m, number: m.imported + i})
	}
	g.chosen = make([]bool, len(g.edges))
	for i := range m.types {
		g.chosen[len(m.funcs)+i] = m.strangers()
	}
	g.order = choose(g.edges, g.chosen)
	return g
}

func (g *graph) edge(from, to int) { g.edges[from] = append(g.edges[from], int32(to)) } //nolint:gosec // limited

// read reads the calls of a function, up to the first fault.
func (g *graph) read(b body) {
	b.readLocals(b.signature())
	for b.ok() && b.left() > 0 {
		at := b.i
		op := b.byte()
		in := instructions[op]
		if in.imm == immUnknown {
			in = b.longer(at, op)
		}
		to := -1
		switch {
		case in.imm == immFunc || op == opBr || op == opBrIf:
			b.u32()
		case op == opBlock || op == opLoop || op == opIf:
			b.blockType()
		case op == opBrTable:
			for range b.count(b.m.cfg.MaxValues, "labels") + 1 {
				b.u32()
			}
		case op == opCall:
			to = b.index(len(b.m.funcs), "function")
		case op == opCallIndirect:
			to = len(b.m.funcs) + g.typeOf(b.index(len(b.m.types), "type"))
			b.u32()
		default:
			b.immediate(in.imm)
		}
		if to >= 0 && b.ok() && !b.cold() {
			g.edge(b.number, to)
		}
	}
}

// typeOf returns the first type that equals a type.
func (g *graph) typeOf(typ int) int {
	if typ < 0 || typ >= len(g.types) {
		return 0
	}
	return g.types[typ]
}

// cold reports whether an unreachable follows.
func (b *body) cold() bool { return b.left() > 0 && b.b[b.i] == opUnreachable }

// facts holds the properties of the functions that were read. Those that were not read before their
// callers are chosen, or called by cold calls only.
type facts struct {
	graph *graph
	all   []fact // of functions, then of types
}

// untracked is the largest stack of functions that do not count it, in bytes.
const untracked = 2 << 10

func newFacts(g *graph) facts {
	f := facts{graph: g, all: make([]fact, len(g.edges))}
	for i := range f.all {
		host := i < g.m.imported
		if i >= len(g.m.funcs) {
			host = g.m.strangers() || slices.ContainsFunc(g.targets[i-len(g.m.funcs)], func(to int) bool { return to < g.m.imported })
		}
		f.all[i] = fact{host: host, pauses: i >= g.m.imported, owed: longestLate}
	}
	return f
}

func (f *facts) of(function int) *fact { return &f.all[function] }

func (f *facts) ofType(typ int) *fact { return &f.all[len(f.graph.m.funcs)+f.graph.types[typ]] }

// chosenType reports whether the calls by a type are chosen.
func (f *facts) chosenType(typ int) bool {
	return f.graph.chosen[len(f.graph.m.funcs)+f.graph.types[typ]]
}

// joinType joins the properties of all functions that call_indirect with a type may call.
func (f *facts) joinType(node int) {
	if !f.graph.chosen[node] {
		f.join(node)
	}
}

// joinChosen joins the properties of the functions of each chosen type, after all functions were
// read. They do not depend on the type: the properties of a function that calls by it are constant,
// see conclude.
func (f *facts) joinChosen() {
	for node := len(f.graph.m.funcs); node < len(f.all); node++ {
		switch {
		case !f.graph.chosen[node]:
		case f.graph.m.strangers():
			f.all[node].stack = untracked
		default:
			f.join(node)
		}
	}
}

// join joins the properties of the functions of a type.
func (f *facts) join(node int) {
	f.all[node] = fact{}
	for _, function := range f.graph.targets[node-len(f.graph.m.funcs)] {
		f.all[node].join(&f.all[function])
	}
}

// chosenTarget reports whether a call by a chosen type may lead to a function.
func (f *facts) chosenTarget(function int) bool {
	m := f.graph.m
	return function < len(m.declared) && m.declared[function] && f.chosenType(m.funcs[function])
}

// strangers reports whether the module may call functions that it does not name: it imports a table
// or something that may be a reference. The host of handlers provides none of these, and writes to
// no table of a guest.
func (m *module) strangers() bool {
	return slices.ContainsFunc(m.imports, func(im Import) bool {
		return im.Kind == importTable || im.Kind == importGlobal || bytes.IndexByte(im.Results, typeFuncref) >= 0
	})
}

// coldStack returns the bytes that the stack in use grows by before a cold call of the function:
// the frames from the called function up to one that counts them, at most the bytes of untracked,
// and the frame of the function itself, which is not counted if it calls no function.
func (f *function) coldStack() int64 {
	if f.calls {
		return untracked
	}
	return untracked + f.frameSize()
}

// conclude records the properties of a function that was read.
func (f *function) conclude() {
	c := &f.charges
	own := fact{pauses: c.paused, owed: max(0, c.owed), head: c.head, passes: c.gap.whole >= 0, whole: max(0, c.gap.whole), tail: max(0, c.gap.since)}
	if f.calls {
		own.stack = f.frameSize() + f.below
	}
	target := f.facts.chosenTarget(f.body.number)
	f.chosen = f.facts.graph.chosen[f.body.number] || f.byType || target && max(own.tail, own.whole) >= shortGap
	f.tracked = f.tracked || f.chosen || own.stack > untracked
	if f.tracked {
		own.stack = 0
	}
	if f.entry = f.chosen || (f.calls || target) && own.head >= shortGap; f.entry {
		own.pauses, own.head, own.passes, own.tail, own.whole = true, 0, false, max(own.tail, own.whole), 0
	}
	if f.restarts() {
		t := f.body.signature()
		f.passed = max(f.passed, t.size)
		f.values += len(t.params) + len(t.results) + callValues
		f.blocks += startBlocks
	}
	if f.chosen { // it pauses before it returns
		own.tail, own.owed = 0, longestLate
	}
	f.facts.all[f.body.number] = own
}

// restarts reports whether the function begins anew after a pause at its entry.
func (f *function) restarts() bool { return f.entry && f.tracked }

// direct reads a call of a function.
func (f *function) direct(at int) {
	callee := f.body.index(len(f.body.m.funcs), "function")
	if !f.body.ok() {
		return
	}
	to := f.facts.of(callee)
	f.beforeCall(at, to)
	if callee < f.body.m.imported {
		f.charges.pay(importCost)
	}
	f.call(at, f.body.m.funcs[callee], callCost, to)
}

// indirect reads a call by a type. If the type is chosen, the function counts as chosen, or, if the
// called functions are not all known, the guest pauses before and behind the call.
func (f *function) indirect(at int) {
	typ := f.body.index(len(f.body.m.types), "type")
	f.body.index(f.body.m.tables, "table")
	if !f.body.ok() {
		return
	}
	to := f.facts.ofType(typ)
	chosen := f.facts.chosenType(typ) && !f.cold() && f.charges.reachable()
	if !chosen || !f.body.m.strangers() {
		f.byType = f.byType || chosen
		f.beforeCall(at, to)
		f.call(at, typ, indirectCost, to)
		return
	}
	f.charges.pause(place{at: int32(at)})
	f.call(at, typ, indirectCost, to)
	f.tracked = true
	f.charges.pause(f.next())
}

// beforeCall keeps the gap small enough for a function that does not pause at its entry.
func (f *function) beforeCall(at int, to *fact) {
	c := &f.charges
	switch {
	case f.cold(): // see coldFunction
	case to.head > 0 && c.gap.most()+to.head >= longestGap && c.gap.most() > cheap && c.reachable():
		c.pause(place{at: int32(at)})
	default:
		c.keepGap(place{at: int32(at)}, false)
	}
}

func (f *function) call(at, typ int, cost int64, to *fact) {
	t := &f.body.m.types[typ]
	passed := len(t.params) + len(t.results)
	f.values += passed + callValues
	if f.charges.reachable() {
		if len(t.results) > 1 {
			f.held += t.size
		}
		f.passed = max(f.passed, t.size)
		f.charges.pay(cost + entryCharge + int64(passed)/4)
		f.stack(at, to)
	}
	if !f.cold() {
		f.tracked = f.tracked || to.host
		if to.host {
			f.charges.add(edit{place: f.next(), kind: editHost})
		}
		f.charges.call(f.next(), to)
		if top := &f.frames[len(f.frames)-1]; to.pauses {
			top.owed = max(top.owed, to.owed)
		}
	}
}

// cold reports whether the call that was read is cold.
func (f *function) cold() bool { return f.body.cold() }

// stack records a call for the count of the stack.
func (f *function) stack(at int, to *fact) {
	if f.cold() {
		f.store(at, 0)
		f.charges.add(edit{place: place{at: int32(at)}, kind: editCold})
		return
	}
	f.calls, f.frames[len(f.frames)-1].calls = true, true
	f.below = max(f.below, to.stack)
}
