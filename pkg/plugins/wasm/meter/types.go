package meter

// featureOfType names the proposal of a type that is none of WebAssembly 2.0.
func featureOfType(c byte) string {
	switch {
	case c == 0x63 || c == 0x64:
		return "function-references"
	case c == 0x69 || c == 0x74:
		return "exception-handling"
	case c == 0x68 || c == 0x75:
		return "stack-switching"
	case c >= 0x6a && c <= 0x73, c == 0x77 || c == 0x78, c >= 0x4e && c <= 0x50, c == 0x5e || c == 0x5f:
		return "gc"
	}
	return ""
}

func badType(r *reader, c byte) {
	if name := featureOfType(c); name != "" && r.ok() {
		r.feature(r.at()-1, name)
		return
	}
	r.fail(r.at()-1, "unknown type %#x", c)
}

func refType(r *reader) {
	if c := r.byte(); c != 0x70 && c != 0x6f {
		badType(r, c)
	}
}

func valueType(r *reader) byte {
	c := r.byte()
	if (c < 0x7b || c > 0x7f) && c != 0x70 && c != 0x6f {
		badType(r, c)
	}
	return c
}

func sizeOf(valueType byte) int {
	if valueType == typeV128 {
		return 16
	}
	return 8
}

func mutability(r *reader) {
	if c := r.byte(); c > 1 {
		if c&2 != 0 {
			r.feature(r.at()-1, "shared-everything-threads")
		}
		r.fail(r.at()-1, "unknown mutability %#x", c)
	}
}

func types(s *reader, size *int) (n int, last byte) {
	n = s.count(1000, "parameters or results")
	for range n {
		last = valueType(s)
		*size += sizeOf(last)
	}
	return n, last
}

// limits reads a size: least, and most or -1.
func limits(s *reader) (least, most int64) {
	at := s.at()
	switch flags := s.byte(); {
	case flags > 15:
		s.fail(at, "unknown limits %#x", flags)
	case flags&2 != 0:
		s.feature(at, "threads")
	case flags&4 != 0:
		s.feature(at, "memory64")
	case flags&8 != 0:
		s.feature(at, "custom-page-sizes")
	case flags&1 == 0:
		return int64(s.u32()), -1
	}
	least = int64(s.u32())
	return least, int64(s.u32())
}

// constExpr reads a constant expression: one instruction in WebAssembly 2.0.
func (p *parser) constExpr(s *reader) {
	at := s.at()
	switch op := s.byte(); op {
	case opI32Const:
		s.signed(32)
	case opI64Const:
		s.signed(64)
	case opF32Const:
		s.bytes(4)
	case opF64Const:
		s.bytes(8)
	case opGlobalGet:
		s.index(p.globals, "global")
	case opRefNull:
		refType(s)
	case opRefFunc:
		s.index(len(p.funcs), "function")
	case opVector:
		if s.byte() != vecConst {
			s.fail(at, "instruction in a constant expression")
		}
		s.bytes(16)
	case opGC:
		s.feature(at, "gc")
	default:
		s.fail(at, "instruction %#x in a constant expression", op)
	}
	if !s.ok() {
		return
	}
	at = s.at()
	switch op := s.byte(); op {
	case opEnd:
	case opI32Const, opI64Const, opGlobalGet, 0x6a, 0x6b, 0x6c, 0x7c, 0x7d, 0x7e:
		s.feature(at, "extended-const")
	case opGC:
		s.feature(at, "gc")
	default:
		s.fail(at, "constant expression without end")
	}
}
