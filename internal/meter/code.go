package meter

import (
	"bytes"
	"math"
	"slices"
)

// code rewrites the functions of a module, one after the other.
type code struct {
	added    *additions
	function function // the function that is read
	facts    facts
	values   int      // of all functions, see Config.MaxValues
	squares  int      // of all functions, see Config.MaxBlocks
	body     []byte   // of the function that is written
	bodies   [][]byte // of the functions that were written
}

// rewrite returns the code section, including the added functions.
func (c *code) rewrite(s *reader) ([]byte, error) {
	m := c.added.m
	at, n := s.at(), s.count(math.MaxUint32, "functions")
	if defined := len(m.funcs) - m.imported; n != defined {
		s.fail(at, "%d functions, and %d with code", defined, n)
	}
	var bodies []reader
	for i := m.imported; s.ok() && i < len(m.funcs); i++ {
		at, size := s.at(), s.u32()
		if size > m.cfg.MaxBody {
			s.fail(at, "function %d has %d bytes, more than the limit of %d", i, size, m.cfg.MaxBody)
		}
		if b := s.sub(int(size)); s.ok() {
			bodies = append(bodies, b)
		}
	}
	s.end("a section")
	if err := c.addAll(bodies); err != nil {
		return nil, err
	}
	if s.err != nil {
		return nil, s.err
	}
	out := appendUint(make([]byte, 0, len(s.b)+len(s.b)/2), uint64(n+c.added.functions()))
	for _, b := range c.bodies {
		out = appendSized(out, b)
	}
	return c.added.appendFunctions(out), nil
}

// addAll rewrites the functions, callees first. The error is that of the first function with one.
func (c *code) addAll(bodies []reader) (err error) {
	m := c.added.m
	g := newGraph(m, bodies)
	c.facts = newFacts(g)
	c.bodies = make([][]byte, len(bodies))
	first := len(m.funcs)
	each := func(do func(index int, b reader) error) {
		for _, node := range g.order {
			defined := node - m.imported
			switch {
			case node >= len(m.funcs):
				c.facts.joinType(node)
			case defined >= 0 && defined < len(bodies):
				if bad := do(node, bodies[defined]); bad != nil && node < first {
					first, err = node, bad
				}
			}
		}
	}
	if slices.Contains(g.chosen[len(m.funcs):], true) {
		each(c.read)
		c.facts.joinChosen()
	}
	each(c.add)
	return err
}

// read reads one function and records its properties.
func (c *code) read(index int, b reader) error {
	f, m := &c.function, c.added.m
	*f = function{
		body:    body{reader: b, m: m, number: index},
		charges: charges{edits: f.charges.edits[:0], gap: gap{noWay, 0, noWay}},
		frames:  f.frames[:0], loops: f.loops[:0], targets: f.targets, facts: &c.facts,
	}
	f.read(f.body.signature())
	if !f.body.ok() {
		return f.body.err
	}
	f.conclude()
	return nil
}

// The limits of all functions together, as multiples of the limits of one function.
const (
	valuesShare  = 64
	squaresShare = 16
)

// add reads one function and appends its rewritten code.
func (c *code) add(index int, b reader) error {
	f, m := &c.function, c.added.m
	if err := c.read(index, b); err != nil {
		return err
	}
	if c.values += f.values; c.values/valuesShare > int(m.cfg.MaxValues) {
		f.body.failAt(0, "the functions have more than %d values: too large to compile", valuesShare*int64(m.cfg.MaxValues))
	}
	most, blocks := int(m.cfg.MaxBlocks), f.blocks+f.charges.blocks
	if blocks > most {
		f.body.failAt(0, "function %d has %d blocks and branches, more than the limit of %d: too large to compile", index, blocks, most)
	}
	if c.squares += blocks * blocks; c.squares > squaresShare*most*most {
		f.body.failAt(0, "the functions up to %d together have too many blocks and branches: too large to compile", index)
	}
	if !f.body.ok() {
		return f.body.err
	}
	w := writer{added: c.added, assembler: assembler{b: c.body[:0]}}
	w.function(f)
	c.body = w.b
	c.bodies[index-m.imported] = bytes.Clone(w.b)
	return nil
}

// frameSize estimates the native stack of a call in bytes. The compiler spills values that are live
// across calls: a part of the locals and of the results of instructions, and parameters and results
// of calls. Most functions need a tenth to a half of the estimate. The engine doubles its stack
// when it is too small, so it may allocate twice as much, see TestNativeStack.
func (f *function) frameSize() int64 {
	return min(int64(frameBase+f.body.size+f.held+f.passed+frameShare*f.seen), math.MaxInt32/4)
}

const (
	frameBase  = 48
	frameShare = 2
)
