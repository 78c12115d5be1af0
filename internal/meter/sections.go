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

// What a module may have of each, beside the limits of Config: a few bytes of the file become a
// hundred or more in memory. Compilers emit a hundredth to a tenth of it.
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

// module is what was read of a module: its sections, and what it has of each kind, which indexes
// count.
type module struct {
	cfg      Config
	sections [secTag][]byte // by id; nil: there is none. The custom one has the names of functions
	code     reader         // the section, of which nothing was read yet

	types    []signature
	funcs    []int // type of each function, the imported ones first
	imported int   // how many of them are
	imports  []Import
	globals  int
	tables   int
	memories int
	elements int
	data     int // as counted by the data count section; -1: there is none
	start    int // the start function, or -1
	named    bool
	exports  map[string]bool
	declared []bool // functions that ref.func may name
}

// order has the sections in the order in which a module has them. Custom ones may be anywhere.
var order = []byte{
	secType, secImport, secFunction, secTable, secMemory, secGlobal, secExport, secStart, secElement, secDataCount, secCode, secData, secCustom,
}

// readModule reads all but the code. After a fault the module is what was read up to there.
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

// customSection keeps the names of functions, for the traces of traps. The lines of debuggers would
// be wrong now, and nobody reads the rest.
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
	// longestName bounds a name in bytes: one of a function stands in each line of a trace.
	longestName = 4 << 10

	nameFunctions = 1 // the part of a name section that has those of functions
)

// functionNames returns the names of functions in a name section, or nil if there is something
// wrong with it, or a name is too long, or there are more than functions.
func (r *reader) functionNames(functions int) (names []byte) {
	for r.ok() && r.left() > 0 {
		id := r.byte()
		sub := r.sub(int(r.u32()))
		switch id {
		case 0: // of the module
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
