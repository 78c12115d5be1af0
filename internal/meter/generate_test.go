package meter_test

import (
	"math/rand/v2"
	"slices"
)

// generator makes random valid modules that terminate: each loop and function counts its rounds
// down in a global, and traps at zero. With counting, another global counts the executed
// instructions except those of the structure.
type generator struct {
	*rand.Rand
	counting bool
	b        []byte
	labels   []label
	funcs    []fn // functions that may be called
	depth    int
	total    int // of the functions
	reach    int // the functions that a function calls
}

// The functions that a function of a generated module calls.
const (
	before     = iota // those before it: no cycle
	beforeSelf        // and itself
	everywhere
)

type label struct {
	carries byte // type of the value that a branch passes; 0: none
}

const (
	rounds  = 0 // globals
	counter = 1
	shared  = 2 // i32
	results = 6 // locals, i32; the parameters are 0 and 1
	wide    = 7 // i64
	bodies  = 6
	levels  = 6
	lengths = 4
)

func generate(seed uint64, counting bool) []byte {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 7)), counting: counting}
	m := mod{
		memory: []byte{1, 1, 2},
		tables: [][]byte{{0x70, 0, 4}},
		globals: [][]byte{
			code(i64, 1, constI64, s(300), end), code(i64, 1, num64(0), end), code(i32, 1, num(7), end),
		},
		exports: [][]byte{
			code(sized([]byte("rounds")), 3, rounds), code(sized([]byte("counter")), 3, counter), code(sized([]byte("shared")), 3, shared),
			code(sized([]byte("memory")), 2, 0),
		},
		data: [][]byte{append([]byte{1}, sized([]byte("some bytes to copy from"))...)},
	}
	n := 1 + g.IntN(bodies)
	g.total, g.reach = n, g.IntN(everywhere+1)
	for range n {
		g.b, g.labels = nil, []label{{i32}}
		g.round()
		for range 1 + g.IntN(lengths) {
			g.statement()
		}
		g.value(i32)
		f := fn{params: []byte{i32, i64}, results: []byte{i32}, locals: []byte{2, 5, i32, 2, i64}, body: slices.Clone(g.b)}
		g.funcs = append(g.funcs, f)
	}
	g.funcs[n-1].name = "f"
	m.funcs = g.funcs
	entry := n - 1
	if g.reach == before {
		entry = 0
	}
	// The second segment lets ref.func name function 0.
	m.elems = [][]byte{code(0, num(0), end, 1, entry), {3, 0, 1, 0}}
	return m.assemble()
}

// op emits instructions that are executed together.
func (g *generator) op(parts ...any) {
	b := code(parts...)
	if g.counting {
		g.b = append(g.b, code(globalGet, counter, constI64, s(5), 0x7c, globalSet, counter)...)
	}
	g.b = append(g.b, b...)
}

// plain emits instructions that are not counted.
func (g *generator) plain(parts ...any) { g.b = append(g.b, code(parts...)...) }

func (g *generator) round() {
	g.plain(globalGet, rounds, num64(1), 0x7d, globalSet, rounds, globalGet, rounds, num64(0), 0x53, ifThen, void, unreachable, end)
}

func (g *generator) nest(op byte, typ byte, inner func()) {
	g.depth++
	if typ == 0 {
		g.plain(int(op), void)
	} else {
		g.plain(int(op), int(typ))
	}
	if op == loop {
		g.labels = append(g.labels, label{})
		g.round()
	} else {
		g.labels = append(g.labels, label{typ})
	}
	inner()
	g.labels = g.labels[:len(g.labels)-1]
	g.depth--
}

// full reports whether the module must come to an end.
func (g *generator) full() bool { return g.depth > levels || len(g.b) > 3000 }

func (g *generator) statements() {
	for range g.IntN(lengths) {
		g.statement()
	}
}

// statement leaves the stack as it is.
func (g *generator) statement() {
	n := 15
	if g.full() {
		n = 4
	}
	switch g.IntN(n) {
	case 0, 1:
		g.value(i32)
		g.op(set, 2+g.IntN(results-2))
	case 2:
		g.value(i64)
		g.op(set, wide+g.IntN(2))
	case 3:
		g.value(i32)
		g.op(globalSet, shared)
	case 4:
		g.nest(block, 0, g.statements)
		g.plain(end)
	case 5, 6:
		g.nest(loop, 0, func() {
			g.statements()
			g.value(i32)
			g.branch(brIf, 0)
			g.statements()
		})
		g.plain(end)
	case 7:
		g.value(i32)
		g.nest(ifThen, 0, g.statements)
		g.plain(end)
	case 8:
		g.value(i32)
		g.nest(ifThen, 0, func() {
			g.statements()
			g.plain(elseThen)
			g.statements()
		})
		g.plain(end)
	case 9:
		g.value(i32)
		g.op(num(0xfff), 0x71, get, 2, 0x36, 2, 8) // i32.store
	case 10:
		g.bulk()
	case 11:
		g.leave()
	case 12:
		g.dispatch()
	case 13:
		g.value(i32)
		g.branch(brIf, g.IntN(len(g.labels)))
	case 14:
		g.cold()
	}
}

// cold calls a function that is not to return, as code does that panics.
func (g *generator) cold() {
	g.value(i32)
	g.op(num(31), 0x71 /* and */, 0x45 /* eqz */)
	g.nest(ifThen, 0, func() {
		if g.callOne() {
			g.plain(unreachable)
			return
		}
		g.op(drop)
	})
	g.plain(end)
}

// leave is a block with a branch out of its middle.
func (g *generator) leave() {
	g.plain(block, void)
	g.labels = append(g.labels, label{})
	g.depth++
	g.statements()
	switch g.IntN(3) {
	case 0:
		g.branch(br, g.IntN(len(g.labels)))
	case 1:
		g.value(i32)
		g.op(ret)
	default:
		g.branch(br, 0)
	}
	g.statements() // unreachable
	g.plain(unreachable, end)
	g.labels = g.labels[:len(g.labels)-1]
	g.depth--
}

// branch emits a branch that leaves the stack as it is. The condition of br_if is on it.
func (g *generator) branch(op byte, depth int) {
	carries := g.labels[len(g.labels)-1-depth].carries
	switch {
	case carries == 0:
		g.op(int(op), depth)
	case op == brIf:
		g.op(set, 2)
		g.value(carries)
		g.op(get, 2, brIf, depth, drop)
	default:
		g.value(carries)
		g.op(int(op), depth)
	}
}

// dispatch is a loop that jumps to one of its blocks in each round, the form of all functions of
// Go's compiler.
func (g *generator) dispatch() {
	n := 1 + g.IntN(4)
	g.plain(loop, void)
	g.labels = append(g.labels, label{})
	self := g.IntN(2) // a jump to the loop itself must be counted
	if self == 1 {
		g.round()
	}
	for range n {
		g.plain(block, void)
		g.labels = append(g.labels, label{})
	}
	targets := make([]byte, g.IntN(5))
	for i := range targets {
		targets[i] = byte(g.IntN(n + self))
	}
	g.plain(get, 3, brTable, sized(targets), g.IntN(n))
	g.depth += 2
	for range n {
		g.plain(end)
		g.labels = g.labels[:len(g.labels)-1]
		g.round()
		g.statements()
		if g.IntN(2) == 0 {
			g.op(get, 3, num(1), add, num(3), 0x71, set, 3)
			g.value(i32)
			g.op(brIf, len(g.labels)-1-g.loopLabel())
		}
	}
	g.depth -= 2
	g.plain(end)
	g.labels = g.labels[:len(g.labels)-1]
}

// loopLabel is the innermost label without a value: in dispatch, its loop or one of its blocks.
func (g *generator) loopLabel() int {
	for i := len(g.labels) - 1; ; i-- {
		if g.labels[i].carries == 0 {
			return i
		}
	}
}

func (g *generator) bulk() {
	size := num(int64(g.IntN(3000)))
	if g.IntN(10) == 0 {
		size = num(1 << 20) // beyond the memory
	}
	switch g.IntN(6) {
	case 0:
		g.op(get, 2, num(0xfff), 0x71, get, 3, size, 0xfc, 11, 0)
	case 1:
		g.op(get, 2, num(0xfff), 0x71, get, 3, num(0xfff), 0x71, size, 0xfc, 10, 0, 0)
	case 2:
		g.op(num(64), num(2), num(5), 0xfc, 8, 0, 0)
	case 3:
		g.op(num(1), 0x40, 0, set, 4)
	case 4:
		g.op(0xd2, 0, num(1), 0xfc, 15, 0, set, 4)
	case 5:
		g.op(num(0), 0xd0, 0x70, num(1), 0xfc, 17, 0)
	}
}

// value leaves a value on the stack.
func (g *generator) value(typ byte) {
	n := 10
	if g.full() {
		n = 3
	}
	g.depth++
	defer func() { g.depth-- }()
	if typ == i64 {
		g.long(n)
		return
	}
	switch g.IntN(n) {
	case 0:
		g.op(num(int64(g.Int32()) >> g.IntN(32)))
	case 1:
		g.op(get, 2+g.IntN(results-2))
	case 2:
		g.op(globalGet, shared)
	case 3, 4:
		g.value(i32)
		g.value(i32)
		g.op([]int{add, sub, 0x6c, 0x71, 0x73, ltS, 0x6d /* div_s */}[g.IntN(7)])
	case 5:
		g.value(i32)
		g.op(num(0xfff), 0x71, 0x28, 2, 4) // i32.load
	case 6:
		g.nest(block, i32, func() { g.statements(); g.value(i32) })
		g.plain(end)
	case 7:
		g.value(i32)
		g.nest(ifThen, i32, func() {
			g.statements()
			g.value(i32)
			g.plain(elseThen)
			g.value(i32)
		})
		g.plain(end)
	case 8:
		g.nest(loop, i32, func() { g.statements(); g.value(i32) })
		g.plain(end)
	case 9:
		g.callOne()
	}
}

func (g *generator) long(n int) {
	switch g.IntN(min(n, 4)) {
	case 0:
		g.op(num64(g.Int64() >> g.IntN(64)))
	case 1, 2:
		g.op(get, wide+g.IntN(2))
	case 3:
		g.value(i32)
		g.op(0xac) // extend
	}
}

// callOne calls a function, perhaps through the table. It reports whether there is one to call.
func (g *generator) callOne() bool {
	n := [...]int{before: len(g.funcs), beforeSelf: len(g.funcs) + 1, everywhere: g.total}[g.reach]
	if n == 0 {
		g.op(num(1))
		return false
	}
	g.value(i32)
	g.value(i64)
	if g.IntN(3) == 0 {
		g.op(num(int64(g.IntN(2))), callInd, 1, 0) // 1 is null: a trap
	} else {
		g.op(call, g.IntN(n))
	}
	return true
}
