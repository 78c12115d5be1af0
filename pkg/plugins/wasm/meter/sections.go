package meter

import (
	"bytes"
	"fmt"
	"math"
)

// Sections by their id.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
	secTag
)

// section is a part of the module as it was, or as it is to be.
type section struct {
	id   byte
	body []byte
}

// signature counts a function type's values.
type signature struct {
	params, results int
	size            int    // bytes of all of them
	result          byte   // the last
	from            [2]int // where the results are in the section
	block           int    // type without the parameters, once added
}

// parser reads a module, section by section, and holds what is needed of it to check indexes and to rewrite.
type parser struct {
	reader
	cfg Config

	sections []section
	types    []signature
	funcs    []int // type of each function, the imported ones first
	imported struct {
		funcs, memories int
		globals, tables []string
	}
	globals  int
	tables   int
	memories int
	elements int
	data     int // as counted by the data count section; -1: there is none
	named    bool
	exports  map[string]bool
	values   int // of all functions, see Config.MaxValues
	squares  int // of all functions, see Config.MaxBlocks

	function function // the one that is read
	body     []byte   // of the function that is written
	out      []byte   // the code section
	added    []int    // types whose results are those of blocks
}

// rank is a section's place in a module: its id, but for the data count section.
func rank(id byte) int {
	switch id {
	case secDataCount:
		return secCode
	case secCode, secData:
		return int(id) + 1
	default:
		return int(id)
	}
}

func (p *parser) module() {
	p.data = -1
	if !bytes.HasPrefix(p.b, []byte("\x00asm")) {
		p.fail(0, "it does not start with \\0asm")
	}
	p.bytes(4)
	if v := p.bytes(4); p.ok() && !bytes.Equal(v, []byte{1, 0, 0, 0}) {
		if v[2] != 0 {
			p.feature(4, "component-model")
		}
		p.fail(4, "unknown binary version")
	}
	last, has := 0, [secTag]bool{}
	for p.ok() && p.left() > 0 {
		at, id := p.at(), p.byte()
		s := p.sub(int(p.u32()))
		switch {
		case !p.ok():
			return
		case id == secTag:
			p.feature(at, "exception-handling")
			return
		case id > secTag:
			p.fail(at, "unknown section %d", id)
			return
		case id != secCustom && rank(id) <= last:
			p.fail(at, "section %d twice or in the wrong order", id)
			return
		}
		if id != secCustom {
			last, has[id] = rank(id), true
		}
		p.section(id, s)
	}
	if !p.ok() {
		return
	}
	if len(p.funcs) > p.imported.funcs && !has[secCode] {
		p.fail(p.at(), "functions without code")
	}
	if p.data > 0 && !has[secData] {
		p.fail(p.at(), "data count without data")
	}
}

// section reads one section. What is not rewritten is kept as it is.
func (p *parser) section(id byte, s reader) {
	body := s.b
	switch id {
	case secCustom:
		if !p.customSection(&s) {
			body = nil
		}
	case secType:
		p.typeSection(&s)
	case secImport:
		p.importSection(&s)
	case secFunction:
		p.functionSection(&s)
	case secTable:
		body = p.tableSection(&s)
	case secMemory:
		for range s.count(math.MaxUint32, "memories") {
			p.memory(&s)
		}
	case secGlobal:
		p.globalSection(&s)
	case secExport:
		p.exportSection(&s)
	case secStart:
		s.index(len(p.funcs), "function")
	case secElement:
		p.elementSection(&s)
	case secDataCount:
		p.data = int(s.u32())
	case secCode:
		body = p.codeSection(&s)
	case secData:
		p.dataSection(&s)
	}
	s.end("a section")
	if !s.ok() {
		p.failWith(s.err)
		return
	}
	if body != nil {
		p.sections = append(p.sections, section{id, body})
	}
}

// customSection reports whether a section is kept: the names of functions are, for the traces of traps. The lines of debuggers would
// be wrong now, and nobody reads the rest.
func (p *parser) customSection(s *reader) bool {
	at, name := s.at(), s.name()
	names := reader{b: s.b[s.i:]}
	s.i = len(s.b)
	if name != "name" || !s.ok() || !names.shortNames() {
		return false
	}
	if p.named {
		s.fail(at, "name section twice")
	}
	p.named = true
	return true
}

// longestName bounds a name in bytes: one of a function stands in each line of a trace.
const longestName = 4 << 10

// shortNames reads the name section. It reports false if there is something wrong with it, or a name is too long.
func (r *reader) shortNames() bool {
	for r.ok() && r.left() > 0 {
		id := r.byte()
		sub := r.sub(int(r.u32()))
		switch id {
		case 0: // of the module
			sub.shortName()
		case 1: // of functions
			for range sub.count(math.MaxUint32, "names") {
				sub.u32()
				sub.shortName()
				if !sub.ok() {
					break
				}
			}
		}
		if !sub.ok() {
			return false
		}
	}
	return r.ok()
}

func (r *reader) shortName() {
	if at := r.at(); len(r.name()) > longestName {
		r.fail(at, "a name is longer than %d bytes", longestName)
	}
}

func (p *parser) functionSection(s *reader) {
	for range s.count(p.cfg.MaxFunctions, "functions") {
		p.funcs = append(p.funcs, s.index(len(p.types), "type"))
		if !s.ok() {
			return
		}
	}
}

func (p *parser) globalSection(s *reader) {
	for range s.count(math.MaxUint32, "globals") {
		valueType(s)
		mutability(s)
		p.constExpr(s)
		if !s.ok() {
			return
		}
		p.globals++
	}
}

func (p *parser) typeSection(s *reader) {
	for range s.count(math.MaxUint32, "types") {
		if c := s.byte(); c != 0x60 {
			badType(s, c)
		}
		var t signature
		t.params, _ = types(s, &t.size)
		t.from[0] = s.i
		t.results, t.result = types(s, &t.size)
		t.from[1] = s.i
		if !s.ok() {
			return
		}
		p.types = append(p.types, t)
	}
}

func (p *parser) importSection(s *reader) {
	for range s.count(math.MaxUint32, "imports") {
		name := fmt.Sprintf("%.100s.%.100s", s.name(), s.name())
		at := s.at()
		switch kind := s.byte(); kind {
		case 0:
			p.funcs = append(p.funcs, s.index(len(p.types), "type"))
			p.imported.funcs++
		case 1:
			refType(s)
			limits(s)
			p.tables++
			p.imported.tables = append(p.imported.tables, name)
		case 2:
			p.memory(s)
			p.imported.memories++
		case 3:
			valueType(s)
			mutability(s)
			p.globals++
			p.imported.globals = append(p.imported.globals, name)
		case 4:
			s.feature(at, "exception-handling")
		default:
			s.fail(at, "unknown kind of import %d", kind)
		}
		if !s.ok() {
			return
		}
	}
}

func (p *parser) memory(s *reader) {
	at := s.at()
	limits(s)
	if p.memories++; p.memories > 1 {
		s.feature(at, "multi-memory")
	}
}

// tableSection returns the section with a limit put on tables that have none.
func (p *parser) tableSection(s *reader) []byte {
	n := s.count(p.cfg.MaxTables, "tables")
	body := appendUint(nil, uint64(n))
	total := int64(0)
	for range n {
		at := s.at()
		if s.left() > 0 && s.b[s.i] == 0x40 {
			s.feature(at, "function-references")
			return nil
		}
		refType(s)
		if !s.ok() {
			return nil
		}
		body = append(body, s.b[s.i-1])
		least, most := limits(s)
		if total += least; total > int64(p.cfg.MaxTable) {
			s.fail(at, "tables of %d entries, more than the limit of %d", total, p.cfg.MaxTable)
		}
		if most >= 0 && most < least {
			s.fail(at, "table that starts above its limit")
		}
		share := max(least, int64(p.cfg.MaxTable)/int64(n))
		if p.cfg.MaxTable < math.MaxUint32 && (most < 0 || most > share) {
			most = share
		}
		if most < 0 {
			body = appendUint(append(body, 0), uint64(least))
		} else {
			body = appendUint(appendUint(append(body, 1), uint64(least)), uint64(most))
		}
		p.tables++
	}
	return body
}

func (p *parser) exportSection(s *reader) {
	n := s.count(math.MaxUint32, "exports")
	p.exports = make(map[string]bool, n)
	for range n {
		at := s.at()
		name := s.name()
		if p.exports[name] {
			s.fail(at, "export %.100q twice", name)
		}
		p.exports[name] = true
		switch kind := s.byte(); kind {
		case 0:
			s.index(len(p.funcs), "function")
		case 1:
			s.index(p.tables, "table")
		case 2:
			s.index(p.memories, "memory")
		case 3:
			s.index(p.globals, "global")
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

func (p *parser) elementSection(s *reader) {
	n := s.count(math.MaxUint32, "element segments")
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
				table = s.index(p.tables, "table")
			}
			if s.ok() && table >= p.tables {
				s.fail(at, "table 0 does not exist")
			}
			p.constExpr(s)
		}
		if passive || explicit {
			if exprs {
				refType(s)
			} else if kind := s.byte(); kind != 0 {
				s.fail(s.at()-1, "unknown kind of elements %#x", kind)
			}
		}
		for range s.count(math.MaxUint32, "elements") {
			if exprs {
				p.constExpr(s)
			} else {
				s.index(len(p.funcs), "function")
			}
			if !s.ok() {
				return
			}
		}
	}
	p.elements = n
}

func (p *parser) dataSection(s *reader) {
	at := s.at()
	n := s.count(math.MaxUint32, "data segments")
	if p.data >= 0 && n != p.data {
		s.fail(at, "%d data segments, and %d in the data count", n, p.data)
	}
	for range n {
		at := s.at()
		switch flags := s.u32(); flags {
		case 0:
			p.constExpr(s)
		case 1:
		case 2:
			if at := s.at(); s.u32() != 0 {
				s.feature(at, "multi-memory")
			}
			p.constExpr(s)
		default:
			s.fail(at, "unknown data segment %d", flags)
		}
		s.bytes(int(s.u32()))
		if !s.ok() {
			return
		}
	}
}
