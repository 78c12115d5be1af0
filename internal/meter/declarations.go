package meter

import "math"

func (m *module) startSection(s *reader) {
	at := s.at()
	m.start = s.index(len(m.funcs), "function")
	if !s.ok() {
		return
	}
	if t := m.types[m.funcs[m.start]]; len(t.params)+len(t.results) > 0 {
		s.fail(at, "start function %d has parameters or results", m.start)
	}
}

// declare records a function that a section other than code names. Only such functions may be
// operands of ref.func.
func (m *module) declare(function int) {
	if len(m.declared) == 0 {
		m.declared = make([]bool, len(m.funcs))
	}
	if function < len(m.declared) {
		m.declared[function] = true
	}
}

func (m *module) functionSection(s *reader) {
	for range s.count(m.cfg.MaxFunctions, "functions") {
		m.funcs = append(m.funcs, s.index(len(m.types), "type"))
		if !s.ok() {
			return
		}
	}
}

func (m *module) globalSection(s *reader) {
	for range s.count(maxGlobals, "globals") {
		valueType(s)
		mutability(s)
		m.constExpr(s)
		if !s.ok() {
			return
		}
		m.globals++
	}
}

func (m *module) typeSection(s *reader) {
	values := 0
	for range s.count(maxTypes, "types") {
		if c := s.byte(); c != 0x60 {
			badType(s, c)
		}
		var t signature
		at := s.at()
		t.params = types(s, &t.size)
		t.results = types(s, &t.size)
		if values += len(t.params) + len(t.results); values > maxTypeValues {
			s.fail(at, "types with %d parameters and results, more than the limit of %d", values, maxTypeValues)
		}
		if !s.ok() {
			return
		}
		m.types = append(m.types, t)
	}
}

func (m *module) importSection(s *reader) {
	for range s.count(maxImports, "imports") {
		im := Import{Module: s.name(), Name: s.name()}
		at := s.at()
		switch kind := s.byte(); kind {
		case 0:
			typ := s.index(len(m.types), "type")
			if !s.ok() {
				return
			}
			im.Params, im.Results = m.types[typ].params, m.types[typ].results
			m.funcs = append(m.funcs, typ)
			m.imported++
		case 1:
			refType(s)
			limits(s)
			m.tables++
		case 2:
			m.memory(s)
		case 3:
			valueType(s)
			mutability(s)
			m.globals++
		case 4:
			s.feature(at, "exception-handling")
		default:
			s.fail(at, "unknown kind of import %d", kind)
		}
		if !s.ok() {
			return
		}
		im.Kind = importKind(s.b[at-s.start])
		m.imports = append(m.imports, im)
	}
}

func (m *module) memory(s *reader) {
	at := s.at()
	limits(s)
	if m.memories++; m.memories > 1 {
		s.feature(at, "multi-memory")
	}
}

// tableSection limits tables that have no limit of their own.
func (m *module) tableSection(s *reader) {
	n := s.count(m.cfg.MaxTables, "tables")
	body := appendUint(nil, uint64(n))
	total := int64(0)
	for range n {
		at := s.at()
		if s.left() > 0 && s.b[s.i] == 0x40 {
			s.feature(at, "function-references")
			return
		}
		refType(s)
		if !s.ok() {
			return
		}
		body = append(body, s.b[s.i-1])
		least, most := limits(s)
		if total += least; total > int64(m.cfg.MaxTable) {
			s.fail(at, "tables of %d entries, more than the limit of %d", total, m.cfg.MaxTable)
		}
		if most >= 0 && most < least {
			s.fail(at, "table that starts above its limit")
		}
		share := max(least, int64(m.cfg.MaxTable)/int64(n))
		if m.cfg.MaxTable < math.MaxUint32 && (most < 0 || most > share) {
			most = share
		}
		if most < 0 {
			body = appendUint(append(body, 0), uint64(least))
		} else {
			body = appendUint(appendUint(append(body, 1), uint64(least)), uint64(most))
		}
		m.tables++
	}
	m.sections[secTable] = body
}

func (m *module) exportSection(s *reader) {
	n := s.count(maxExports, "exports")
	m.exports = make(map[string]bool, n)
	for range n {
		at := s.at()
		name := s.name()
		if m.exports[name] {
			s.fail(at, "export %.100q twice", name)
		}
		m.exports[name] = true
		switch kind := s.byte(); kind {
		case 0:
			m.declare(s.index(len(m.funcs), "function"))
		case 1:
			s.index(m.tables, "table")
		case 2:
			s.index(m.memories, "memory")
		case 3:
			s.index(m.globals, "global")
		case 4:
			s.feature(at, "exception-handling")
		default:
			s.fail(at, "unknown kind of export %d", kind)
		}
		if !s.ok() {
			return
		}
	}
}

func (m *module) elementSection(s *reader) {
	n, elements := s.count(maxSegments, "element segments"), 0
	for range n {
		at := s.at()
		flags := s.u32()
		if flags > 7 {
			s.fail(at, "unknown element segment %d", flags)
		}
		passive, explicit, exprs := flags&1 != 0, flags&2 != 0, flags&4 != 0
		if !passive {
			table := 0
			if explicit {
				table = s.index(m.tables, "table")
			}
			if s.ok() && table >= m.tables {
				s.fail(at, "table 0 does not exist")
			}
			m.constExpr(s)
		}
		if passive || explicit {
			if exprs {
				refType(s)
			} else if kind := s.byte(); kind != 0 {
				s.fail(s.at()-1, "unknown kind of elements %#x", kind)
			}
		}
		at, n := s.at(), s.count(maxElements, "elements")
		if elements += n; elements > maxElements {
			s.fail(at, "%d elements, more than the limit of %d", elements, maxElements)
		}
		for range n {
			if exprs {
				m.constExpr(s)
			} else {
				m.declare(s.index(len(m.funcs), "function"))
			}
			if !s.ok() {
				return
			}
		}
	}
	m.elements = n
}

func (m *module) dataSection(s *reader) {
	at := s.at()
	n := s.count(maxData, "data segments")
	if m.data >= 0 && n != m.data {
		s.fail(at, "%d data segments, and %d in the data count", n, m.data)
	}
	for range n {
		at := s.at()
		switch flags := s.u32(); flags {
		case 0:
			m.constExpr(s)
		case 1:
		case 2:
			if at := s.at(); s.u32() != 0 {
				s.feature(at, "multi-memory")
			}
			m.constExpr(s)
		default:
			s.fail(at, "unknown data segment %d", flags)
		}
		s.bytes(int(s.u32()))
		if !s.ok() {
			return
		}
	}
}

// constExpr reads a constant expression: one instruction in WebAssembly 2.0.
func (m *module) constExpr(s *reader) {
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
		s.index(m.globals, "global")
	case opRefNull:
		refType(s)
	case opRefFunc:
		m.declare(s.index(len(m.funcs), "function"))
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
