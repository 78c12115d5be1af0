package meter

import (
	"bytes"
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

// Limits of a module beside those of Config: a few bytes of the file take a hundred or more in
// memory. The output of compilers has a hundredth to a tenth of these counts.
const (
	maxTypes      = 10_000
	maxTypeValues = 20_000 // parameters and results of all types
	maxImports    = 1000
	maxGlobals    = 20_000
	maxExports    = 20_000
	maxSegments   = 10_000  // of elements
	maxElements   = 200_000 // of all segments
	maxData       = 100_000 // segments
)

// signature is the type of a function.
type signature struct {
	params, results []byte // one byte for each value
	size            int    // bytes of all of them
}

// module is the parsed module: its sections, and the number of its items of each kind, which bound
// indexes.
type module struct {
	cfg      Config
	sections [secTag][]byte // by id; nil: missing. The custom section has the names of functions
	code     reader         // the code section, still unread

	types    []signature
	funcs    []int // type of each function, imported ones first
	imported int   // number of imported functions
	imports  []Import
	globals  int
	tables   int
	memories int
	elements int
	data     int // according to the data count section; -1: no such section
	start    int // the start function, or -1
	named    bool
	exports  map[string]bool
	declared []bool // functions that may be operands of ref.func
}

// order is the order of sections in a module. Custom sections may be anywhere.
var order = []byte{
	secType, secImport, secFunction, secTable, secMemory, secGlobal, secExport, secStart, secElement, secDataCount, secCode, secData, secCustom,
}

// readModule reads all sections but the code. After a fault it returns the part before the fault.
func readModule(b []byte, cfg Config) (*module, error) {
	m, r := &module{cfg: cfg, data: -1, start: -1}, reader{b: b}
	if !bytes.HasPrefix(b, []byte("\x00asm")) {
		r.fail(0, "it does not start with \\0asm")
	}
	r.bytes(4)
	if v := r.bytes(4); r.ok() && !bytes.Equal(v, []byte{1, 0, 0, 0}) {
		if v[2] != 0 {
			r.feature(4, "component-model")
		}
		r.fail(4, "unknown binary version")
	}
	for last := -1; r.ok() && r.left() > 0; {
		at, id := r.at(), r.byte()
		s := r.sub(int(r.u32()))
		rank := bytes.IndexByte(order, id)
		switch {
		case !r.ok():
		case id == secTag:
			r.feature(at, "exception-handling")
		case id > secTag:
			r.fail(at, "unknown section %d", id)
		case id == secCustom:
			m.customSection(&s)
		case rank <= last:
			r.fail(at, "section %d twice or in the wrong order", id)
		default:
			last = rank
			m.section(id, &s)
		}
		if s.end("a section"); !s.ok() {
			r.failWith(s.err)
		}
	}
	if len(m.funcs) > m.imported && m.sections[secCode] == nil {
		r.fail(r.at(), "functions without code")
	}
	if m.data > 0 && m.sections[secData] == nil {
		r.fail(r.at(), "data count without data")
	}
	return m, r.err
}

// section reads one section.
func (m *module) section(id byte, s *reader) {
	m.sections[id] = s.b
	switch id {
	case secType:
		m.typeSection(s)
	case secImport:
		m.importSection(s)
	case secFunction:
		m.functionSection(s)
	case secTable:
		m.tableSection(s)
	case secMemory:
		for range s.count(math.MaxUint32, "memories") {
			m.memory(s)
		}
	case secGlobal:
		m.globalSection(s)
	case secExport:
		m.exportSection(s)
	case secStart:
		m.startSection(s)
	case secElement:
		m.elementSection(s)
	case secDataCount:
		m.data = int(s.u32())
	case secCode:
		m.code, s.i = *s, len(s.b)
	case secData:
		m.dataSection(s)
	}
}

// customSection keeps the names of functions for the traces of traps. It drops all other custom
// sections: debug information would be wrong after the rewriting, and the rest is unused.
func (m *module) customSection(s *reader) {
	at, name := s.at(), s.name()
	names := reader{b: s.b[s.i:]}
	s.i = len(s.b)
	if name != "name" || !s.ok() {
		return
	}
	if m.named {
		s.fail(at, "name section twice")
	}
	m.named = true
	if functions := names.functionNames(len(m.funcs)); functions != nil {
		m.sections[secCustom] = appendSection([]byte("\x04name"), nameFunctions, functions)
	}
}

const (
	// longestName bounds a name in bytes: each line of a trace contains the name of a function.
	longestName = 4 << 10

	nameFunctions = 1 // the subsection of a name section with the names of functions
)

// functionNames returns the names of functions in a name section. It returns nil if the section is
// malformed, if a name is too long, or if there are more names than functions.
func (r *reader) functionNames(functions int) (names []byte) {
	for r.ok() && r.left() > 0 {
		id := r.byte()
		sub := r.sub(int(r.u32()))
		switch id {
		case 0: // the name of the module
			sub.shortName()
		case nameFunctions:
			names = sub.b
			for range sub.count(uint32(functions), "names") {
				sub.u32()
				sub.shortName()
				if !sub.ok() {
					break
				}
			}
		}
		if !sub.ok() {
			return nil
		}
	}
	if !r.ok() {
		return nil
	}
	return names
}

func (r *reader) shortName() {
	if at := r.at(); len(r.name()) > longestName {
		r.fail(at, "a name is longer than %d bytes", longestName)
	}
}
