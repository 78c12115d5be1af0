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
// guest is checked before it, see coldFunction. So every cycle of calls has a function with checks
// at its entry, or a cold call.
type graph struct {
	m       *module
	bodies  []reader // of the defined functions
	edges   [][]int32
	types   []int // for each type: the first one that is equal
	targets map[int][]int
	order   []int  // of the nodes, callees first
	cyclic  []bool // for each node: it is in a cycle
}

// fact holds the properties of a function, or of all functions of a type, for its callers.
type fact struct {
	tracked bool // it counts its stack, see tracked
	loud    bool // it is not tracked, but has a cold call or calls a function with one
	checked bool // it may pause at its entry
	wild    bool // it may return with any gap
	host    bool // it is imported: the engine leaves compiled code
	// of a function that is not tracked: the bytes of its frame and of the frames below
	stack int64
	gap   int64 // the largest gap in it, if it does not pause at its entry
}

// join adds the properties of another function to those of a type.
func (t *fact) join(f *fact) {
	t.tracked, t.loud, t.wild = t.tracked || f.tracked, t.loud || f.loud, t.wild || f.wild
	t.checked = t.checked && f.checked
	t.stack, t.gap = max(t.stack, f.stack), max(t.gap, f.gap)
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
	g.sort()
	return g
}

func (g *graph) edge(from, to int) { g.edges[from] = append(g.edges[from], int32(to)) } //nolint:gosec // limited

// read reads the calls of a function, up to the first fault.
func (g *graph) read(b body) {
	b.readLocals(&g.m.types[g.m.funcs[b.number]])
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

// visit is a node on the way from the root of the search.
type visit struct{ node, next int }

// sort finds the strongly connected parts by Tarjan's algorithm, which finds callees first. It does
// not call itself: a module may have a chain of a hundred thousand functions.
func (g *graph) sort() {
	n := len(g.edges)
	number, low, open := make([]int, n), make([]int, n), make([]bool, n)
	g.cyclic = make([]bool, n)
	g.order = make([]int, 0, n)
	var stack []int
	var way []visit
	count := 0
	for root := range n {
		if number[root] == 0 {
			way = append(way, visit{node: root})
		}
		for len(way) > 0 {
			v := &way[len(way)-1]
			if v.next == 0 {
				count++
				number[v.node], low[v.node], open[v.node] = count, count, true
				stack = append(stack, v.node)
			}
			if v.next < len(g.edges[v.node]) {
				to := int(g.edges[v.node][v.next])
				v.next++
				switch {
				case to == v.node:
					g.cyclic[to] = true
				case number[to] == 0:
					way = append(way, visit{node: to})
				case open[to]:
					low[v.node] = min(low[v.node], number[to])
				}
				continue
			}
			node := v.node
			way = way[:len(way)-1]
			if len(way) > 0 {
				up := way[len(way)-1].node
				low[up] = min(low[up], low[node])
			}
			if low[node] == number[node] {
				stack = g.part(stack, node, open)
			}
		}
	}
}

// part takes a strongly connected part from the stack.
func (g *graph) part(stack []int, root int, open []bool) []int {
	at := len(stack) - 1
	for ; stack[at] != root; at-- {
	}
	for _, node := range stack[at:] {
		open[node] = false
		g.cyclic[node] = g.cyclic[node] || len(stack)-at > 1
		g.order = append(g.order, node)
	}
	return stack[:at]
}

// facts holds the properties of the functions that were read.
type facts struct {
	graph     *graph
	all       []fact // of functions, then of types
	strangers bool   // see module.strangers
}

// untracked is the largest stack of functions that do not count it, in bytes.
const untracked = 1 << 10

func newFacts(g *graph) facts {
	f := facts{graph: g, all: make([]fact, len(g.edges)), strangers: g.m.strangers()}
	for i := range f.all {
		// A function that was not read before is in the same cycle, or called by cold calls only. A
		// type in the cycle may also stand for functions that do not pause at their entry.
		f.all[i] = fact{tracked: true, checked: i < len(g.m.funcs), wild: true}
	}
	for i := range g.m.imported {
		// The host may read the stack in use, call the guest, or begin a new delta and set the stack
		// to 0. So the functions that call it count their stack.
		f.all[i] = fact{host: true, tracked: true, checked: true}
	}
	return f
}

func (f *facts) of(function int) *fact { return &f.all[function] }

func (f *facts) ofType(typ int) *fact { return &f.all[len(f.graph.m.funcs)+f.graph.types[typ]] }

// joinType joins the properties of all functions that call_indirect with a type may call.
func (f *facts) joinType(node int) {
	g := f.graph
	if g.cyclic[node] || f.strangers {
		return
	}
	t := fact{checked: true}
	targets := g.targets[node-len(g.m.funcs)]
	for _, function := range targets {
		t.join(&f.all[function])
	}
	t.checked = t.checked && len(targets) > 0
	f.all[node] = t
}

// strangers reports whether the module may call functions that it does not name: it imports a table
// or something that may be a reference. The host of handlers provides none of these, and writes to
// no table of a guest.
func (m *module) strangers() bool {
	return slices.ContainsFunc(m.imports, func(im Import) bool {
		return im.Kind == ImportTable || im.Kind == ImportGlobal || bytes.IndexByte(im.Results, typeFuncref) >= 0
	})
}

// cyclic reports whether the function is in a cycle of calls.
func (f *function) cyclic() bool { return f.facts.graph.cyclic[f.body.number] }

// coldStack returns the bytes that the stack in use grows by before a cold call of the function. A
// tracked function has stored its own. Else the frames from it up to a tracked function are counted
// now: at most the bytes of untracked, but its own is not among them if it calls no function.
func (f *function) coldStack() int64 {
	switch {
	case f.tracked:
		return 0
	case f.calls:
		return untracked
	}
	return untracked + f.frameSize()
}

// conclude records the properties of a function that was read.
func (f *function) conclude() {
	own := fact{gap: f.charges.most, loud: f.loud}
	if f.calls {
		own.stack = f.frameSize() + f.below
	}
	f.tracked = f.tracked || f.cyclic() || own.stack > untracked
	if f.tracked {
		own.tracked, own.stack = true, 0
	}
	if f.entry = f.cyclic() || f.calls && own.gap >= longestGap/2; f.entry {
		own.checked, own.wild, own.gap = true, true, 0
	}
	f.facts.all[f.body.number] = own
}
