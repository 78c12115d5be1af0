package meter

// assembler appends instructions.
type assembler struct{ b []byte }

func (a *assembler) op(ops ...byte)               { a.b = append(a.b, ops...) }
func (a *assembler) local(op byte, index uint64)  { a.b = appendUint(append(a.b, op), index) }
func (a *assembler) global(op byte, index uint64) { a.b = appendUint(append(a.b, op), index) }
func (a *assembler) constant(op byte, v int64)    { a.b = appendInt(append(a.b, op), v) }

// step adds a constant to a local.
func (a *assembler) step(local uint64, by int64) {
	a.local(opLocalGet, local)
	a.constant(opI32Const, by)
	a.op(opI32Add)
	a.local(opLocalSet, local)
}

// aside begins code that is executed if the condition holds, and that does not continue behind its
// end. The compiler places the code of an if before the code that follows, so that the usual way
// jumps over it. This form makes it place the code at the end of the function.
func (a *assembler) aside(condition func()) {
	a.op(opBlock, emptyBlock, opBlock, emptyBlock)
	condition()
	a.op(opBrIf, 0, opBr, 1, opEnd)
}

// writer appends the rewritten code of a function, or an added function.
type writer struct {
	assembler

	added       *additions
	depth, size uint64 // locals: stack in use including this call, operand of a sized charge
	cache       uint64 // local: the fuel in a loop without calls
	// local: the fuel that was stored last; reading the global again takes longer
	spare   uint64
	cached  bool  // the fuel is in the local
	tracked bool  // the function counts its stack
	cold    int64 // see function.coldStack
}

// function writes the rewritten code of a function.
func (w *writer) function(f *function) {
	w.locals(f)
	w.cold = f.coldStack()
	done := f.charges.edits[0].at
	for i := range f.charges.edits {
		e := &f.charges.edits[i]
		w.op(f.body.b[done:e.at]...)
		done = e.at
		w.cached = e.cached
		if i == 0 {
			w.enter(f, e)
			continue
		}
		done += w.edit(e)
	}
	w.op(f.body.b[done:]...)
	w.exit(f)
}

// enter writes the entry of a function. The body of a function that counts its stack becomes a
// block: it has one end, where the stack in use is reduced again.
func (w *writer) enter(f *function, e *edit) {
	e.pauses = e.pauses || f.entry
	if f.restarts() {
		w.restart(f, e.weight)
	} else {
		w.chargeAt(e)
	}
	if f.tracked {
		w.guard(f.frameSize()+f.below, int64(w.added.m.cfg.Stack))
		w.op(opBlock)
		w.op(w.added.resultType(f.body.number)...)
	}
}

// restart writes the charge at the entry of a function that counts its stack, and the pause. After
// the pause the function calls itself: if code behind the pause used the parameters, the compiler
// would store them at each entry. The stack in use includes the second frame.
func (w *writer) restart(f *function, weight int64) {
	fuel := w.get
	if weight > 0 {
		fuel = w.kept
		w.less(weight)
		w.keep()
	}
	w.aside(func() { w.negative(fuel) })
	w.callPause()
	w.refund(weight)
	w.addStack(f.frameSize())
	for i := range f.body.signature().params {
		w.local(opLocalGet, uint64(i))
	}
	w.local(opCall, uint64(f.body.number))
	w.addStack(-f.frameSize())
	w.op(opReturn, opEnd)
}

// addStack adds bytes to the stack in use.
func (w *writer) addStack(bytes int64) {
	w.global(opGlobalGet, w.added.stack)
	w.constant(opI32Const, bytes)
	w.op(opI32Add)
	w.global(opGlobalSet, w.added.stack)
}

// exit writes the end of a function.
func (w *writer) exit(f *function) {
	if !f.tracked {
		return
	}
	w.addStack(-f.frameSize() - f.below)
	if f.chosen {
		w.cached = false
		w.pause(w.get, 0, here)
	}
	w.op(opEnd)
}

// edit writes an insertion and returns the number of bytes of the body that it replaces.
func (w *writer) edit(e *edit) (replaced int32) {
	switch e.kind {
	case editCharge:
		w.chargeAt(e)
	case editSized:
		w.sized(e.scale, e.weight)
		w.chunks(e.bulk)
	case editHost:
		// The host may read the stack in use, call the guest, or begin a new delta and set the stack
		// to 0.
		w.local(opLocalGet, w.depth)
		w.global(opGlobalSet, w.added.stack)
	case editReturn:
		if w.tracked {
			w.local(opBr, uint64(e.depth))
			return 1
		}
	case editCold:
		w.constant(opI32Const, w.cold)
		w.local(opCall, w.added.pause+coldFunction)
	case editLoad, editStore:
		if e.cached {
			w.move(e.kind)
		}
	case editRef:
		w.constant(opI32Const, int64(w.added.slot(int(e.weight))))
		w.local(opTableGet, w.added.table)
		return int32(e.extra)
	case editPause:
		w.pause(w.get, 0, int64(e.depth))
	}
	return 0
}

// locals appends the locals of a function and the added locals.
func (w *writer) locals(f *function) {
	var words, longs byte
	next := uint64(f.body.locals)
	if f.tracked {
		w.depth = next
		w.tracked = true
		words, next = words+1, next+1
	}
	if f.charges.sized {
		w.size = next
		words, next = words+1, next+1
	}
	w.spare = next
	longs, next = 1, next+1
	if f.cached {
		w.cache = next
		longs = 2
	}
	w.b = appendUint(w.b, uint64(f.body.groups)+uint64(min(words, 1)+min(longs, 1)))
	w.op(f.body.declared...)
	if words > 0 {
		w.op(words, typeI32)
	}
	if longs > 0 {
		w.op(longs, typeI64)
	}
}

// move copies the fuel into the local or back.
func (w *writer) move(kind editKind) {
	if kind == editLoad {
		w.global(opGlobalGet, w.added.fuel)
		w.local(opLocalSet, w.cache)
		return
	}
	w.local(opLocalGet, w.cache)
	w.global(opGlobalSet, w.added.fuel)
}

// less subtracts a constant from the fuel and leaves the difference on the stack.
func (w *writer) less(weight int64) {
	w.get()
	w.constant(opI64Const, weight)
	w.op(opI64Sub)
}

func (w *writer) get() {
	if w.cached {
		w.local(opLocalGet, w.cache)
	} else {
		w.global(opGlobalGet, w.added.fuel)
	}
}

// put stores the fuel from the top of the stack.
func (w *writer) put() {
	if w.cached {
		w.local(opLocalSet, w.cache)
	} else {
		w.global(opGlobalSet, w.added.fuel)
	}
}

// keep stores the fuel from the top of the operand stack, also in a local that kept reads.
func (w *writer) keep() {
	if w.cached {
		w.local(opLocalSet, w.cache)
	} else {
		w.local(opLocalTee, w.spare)
		w.global(opGlobalSet, w.added.fuel)
	}
}

// kept gets the fuel that keep has stored.
func (w *writer) kept() {
	if w.cached {
		w.local(opLocalGet, w.cache)
	} else {
		w.local(opLocalGet, w.spare)
	}
}

// sized charges a weight and the size on top of the stack, which stays there. The pause traps
// before an instruction that cannot be paid.
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
	w.keep()
	w.pause(w.kept, 0, here)
}

// guard adds the frame to the stack in use: depth = stack + frame; stack = depth; if depth > limit
// { unreachable }
func (w *writer) guard(frame, limit int64) {
	w.global(opGlobalGet, w.added.stack)
	w.constant(opI32Const, frame)
	w.op(opI32Add)
	w.local(opLocalTee, w.depth)
	w.global(opGlobalSet, w.added.stack)
	w.aside(func() {
		w.local(opLocalGet, w.depth)
		w.constant(opI32Const, limit)
		w.op(opI32GtS)
	})
	w.op(opUnreachable, opEnd)
}
