package meter

import (
	"encoding/binary"
	"math"
)

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func appendInt(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// codeSection reads the functions and writes them anew, one after the other.
func (p *parser) codeSection(s *reader) []byte {
	at, n := s.at(), s.count(math.MaxUint32, "functions")
	if s.ok() && n != len(p.funcs)-p.imported.funcs {
		s.fail(at, "%d functions, and %d with code", len(p.funcs)-p.imported.funcs, n)
		return nil
	}
	p.out = appendUint(make([]byte, 0, len(s.b)+len(s.b)/2), uint64(n+p.pauseFunctions()))
	for i := range n {
		at, size := s.at(), s.u32()
		if size > p.cfg.MaxBody {
			s.fail(at, "function %d has %d bytes, more than the limit of %d", p.imported.funcs+i, size, p.cfg.MaxBody)
		}
		body := s.sub(int(size))
		if !s.ok() {
			return nil
		}
		if err := p.rewrite(p.imported.funcs+i, body); err != nil {
			s.failWith(err)
			return nil
		}
	}
	if p.pauseFunctions() > 0 {
		p.out = p.appendPause(p.out)
	}
	return p.out
}

// rewrite reads one function and appends it to the code section.
func (p *parser) rewrite(index int, body reader) error {
	f := &p.function
	f.reader, f.p, f.number = body, p, index
	t := p.types[p.funcs[index]]
	groups, start, size := f.readLocals(t)
	first := f.i
	f.read(t)
	if p.values += f.values; f.ok() && p.values/32 > int(p.cfg.MaxValues) {
		f.failAt(0, "the functions have more than %d values: too large to compile", 32*int64(p.cfg.MaxValues))
	}
	if most := int(p.cfg.MaxBlocks); f.ok() && f.blocks > most {
		f.failAt(0, "function %d has %d blocks and branches, more than the limit of %d: too large to compile", index, f.blocks, most)
	} else if p.squares += f.blocks * f.blocks; p.squares > 4*most*most {
		f.failAt(0, "the functions up to %d together have too many blocks and branches: too large to compile", index)
	}
	if !f.ok() {
		return f.err
	}
	p.write(groups, start, first, frameSize(size, f.seen))
	return nil
}

// readLocals returns the number of groups of locals, where the first is, and the bytes of all and of the parameters and results.
func (f *function) readLocals(t signature) (groups, start, size int) {
	f.locals, size = t.params, t.size
	groups = f.count(math.MaxUint32, "groups of locals")
	start = f.i
	for range groups {
		at := f.i
		n := f.u32()
		typ := valueType(&f.reader)
		if limit := f.p.cfg.MaxLocals; uint64(f.locals)+uint64(n) > uint64(limit) {
			f.failAt(at, "function %d has more than %d locals", f.number, limit)
		}
		if !f.ok() {
			break
		}
		f.locals += int(n)
		size += int(n) * sizeOf(typ)
	}
	return groups, start, size
}

// frameSize estimates the bytes of native stack of a call: the compiler keeps there what does not stay in a register while others are
// called, so a part of the locals and of what instructions leave. Most functions need a half to a tenth of it; one that holds many
// results over a call, up to four times as much.
func frameSize(values, instructions int) int64 {
	return min(int64(frameBase+values+frameShare*instructions), math.MaxInt32/4)
}

const (
	frameBase  = 32
	frameShare = 2
)

// write appends the function that was read to the code section.
func (p *parser) write(groups, start, first int, frame int64) {
	f := &p.function
	w := p.writer(p.body[:0])
	w.locals(f, groups, f.b[start:first])
	w.op(opBlock, emptyBlock)
	if f.cached {
		w.op(opBlock, emptyBlock)
	}
	w.op(opBlock)
	w.b = append(w.b, p.resultType(f.number)...)
	done := first
	for i := range f.edits {
		e := &f.edits[i]
		w.b = append(w.b, f.b[done:e.at]...)
		done = int(e.at)
		w.cached, w.trap = e.cached, int64(e.depth)
		if f.cached && !e.cached {
			w.trap++ // beyond the block that stores the local
		}
		switch e.kind {
		case editCharge:
			w.chargeAt(e, i == 0 && f.calls)
			if i == 0 && f.calls {
				w.guard(frame, int64(p.cfg.Stack))
			}
		case editSized:
			w.sized(e.scale, e.weight)
		case editCall:
			w.local(opLocalGet, w.depth)
			w.global(opGlobalSet, w.stack)
		case editLoad, editStore:
			if e.cached {
				w.move(e.kind)
			}
		case editPause:
			if w.pauses {
				w.get()
				w.pause(0, int64(e.depth))
			}
		}
	}
	w.b = append(w.b, f.b[done:]...)
	w.op(opReturn, opEnd)
	if f.cached {
		w.move(editStore)
		w.op(opEnd)
	}
	w.op(opUnreachable, opEnd)
	p.body = w.b
	p.out = append(appendUint(p.out, uint64(len(w.b))), w.b...)
}

// writer appends instructions.
type writer struct {
	b                 []byte
	fuel, stack, mark uint64 // globals
	pauseAt           uint64 // the function
	pauses            bool   // there is one
	depth, size       uint64 // locals: stack in use with this call, operand that is charged for
	cache, below      uint64 // locals: fuel, mark
	cached            bool   // the fuel is in the local
	trap              int64  // label of the block that ends in a trap
}

// locals appends the locals of a function, and those that are needed beside them.
func (w *writer) locals(f *function, groups int, old []byte) {
	var words, longs byte
	next := uint64(f.locals)
	if f.calls {
		w.depth = next
		words, next = words+1, next+1
	}
	if f.sized {
		w.size = next
		words, next = words+1, next+1
	}
	if f.cached {
		w.cache = next
		longs, next = 1, next+1
		if w.pauses {
			w.below = next
			longs = 2
		}
	}
	w.b = appendUint(w.b, uint64(groups)+uint64(min(words, 1)+min(longs, 1)))
	w.b = append(w.b, old...)
	if words > 0 {
		w.op(words, typeI32)
	}
	if longs > 0 {
		w.op(longs, typeI64)
	}
}

func (w *writer) op(ops ...byte)               { w.b = append(w.b, ops...) }
func (w *writer) local(op byte, index uint64)  { w.b = appendUint(append(w.b, op), index) }
func (w *writer) global(op byte, index uint64) { w.b = appendUint(append(w.b, op), index) }
func (w *writer) constant(op byte, v int64)    { w.b = appendInt(append(w.b, op), v) }

// move takes the fuel into the local or back.
func (w *writer) move(kind editKind) {
	if kind == editLoad {
		w.global(opGlobalGet, w.fuel)
		w.local(opLocalSet, w.cache)
		if w.pauses {
			w.moveMark()
		}
		return
	}
	w.local(opLocalGet, w.cache)
	w.global(opGlobalSet, w.fuel)
}

// charge takes a constant from the fuel: fuel -= weight; if fuel < 0 goto trap
func (w *writer) charge(weight int64) {
	w.less(weight)
	w.check()
}

// less takes a constant from the fuel, and leaves the rest on the stack.
func (w *writer) less(weight int64) {
	w.get()
	w.constant(opI64Const, weight)
	w.op(opI64Sub)
}

func (w *writer) get() {
	if w.cached {
		w.local(opLocalGet, w.cache)
	} else {
		w.global(opGlobalGet, w.fuel)
	}
}

// put stores what is left, which stays on the stack.
func (w *writer) put() {
	if w.cached {
		w.local(opLocalTee, w.cache)
	} else {
		w.global(opGlobalSet, w.fuel)
		w.global(opGlobalGet, w.fuel)
	}
}

// check stores what is left and traps if it is negative.
func (w *writer) check() {
	w.put()
	w.constant(opI64Const, 0)
	w.op(opI64LtS, opBrIf)
	w.b = appendUint(w.b, uint64(w.trap))
}

// sized takes a weight and the size on top of the stack, which stays there.
func (w *writer) sized(s scale, weight int64) {
	w.local(opLocalTee, w.size)
	w.get()
	w.local(opLocalGet, w.size)
	w.op(opI64ExtendU)
	if s.shift > 0 {
		w.constant(opI64Const, int64(s.shift))
		w.op(opI64ShrU)
	} else {
		w.constant(opI64Const, int64(s.times))
		w.op(opI64Mul)
	}
	w.op(opI64Sub)
	w.constant(opI64Const, weight)
	w.op(opI64Sub)
	w.check()
}

// guard adds the frame to the stack in use: depth = stack + frame; if depth > limit { stack = depth; unreachable }
func (w *writer) guard(frame, limit int64) {
	w.global(opGlobalGet, w.stack)
	w.constant(opI32Const, frame)
	w.op(opI32Add)
	w.local(opLocalTee, w.depth)
	w.constant(opI32Const, limit)
	w.op(opI32GtS, opIf, emptyBlock)
	w.local(opLocalGet, w.depth)
	w.global(opGlobalSet, w.stack)
	w.op(opUnreachable, opEnd)
}
