package meter

import (
	"math"
	"strconv"
)

// emit puts the module together.
func (p *parser) emit() *Module {
	m := &Module{Fuel: p.fresh("rtr_fuel"), Tables: p.imported.tables, Globals: p.imported.globals, StackLimit: p.cfg.Stack}
	m.Stack = p.fresh("rtr_stack")
	if p.cfg.Slice > 0 {
		m.Mark, m.Slice = p.fresh("rtr_mark"), p.cfg.Slice
	}
	size := 64
	for _, s := range p.sections {
		size += len(s.body) + 64
	}
	m.Code = append(make([]byte, 0, size), "\x00asm\x01\x00\x00\x00"...)
	globals, exports := false, false
	add := func(before int) {
		if !globals && before > secGlobal {
			globals = true
			m.Code = p.appendGlobals(m.Code, []byte{0})
		}
		if !exports && before > secExport {
			exports = true
			m.Code = p.appendExports(m.Code, []byte{0}, m)
		}
	}
	for _, s := range p.sections {
		switch s.id {
		case secGlobal:
			globals = true
			m.Code = p.appendGlobals(m.Code, s.body)
			continue
		case secExport:
			add(secExport)
			exports = true
			m.Code = p.appendExports(m.Code, s.body, m)
			continue
		case secCustom:
		case secType:
			s.body = p.appendTypes(s.body)
		case secFunction:
			add(secFunction)
			if p.pauseFunctions() > 0 {
				s.body = appendUint(appendMore(s.body, 1), uint64(p.pauseType()))
			}
		default:
			add(rank(s.id))
		}
		m.Code = appendSection(m.Code, s.id, s.body)
	}
	add(math.MaxInt)
	return m
}

// fresh returns a name that is not exported.
func (p *parser) fresh(name string) string {
	for i, base := 2, name; p.exports[name]; i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	return name
}

// counters is how many globals are added.
func (p *parser) counters() int {
	if p.cfg.Slice > 0 {
		return 3
	}
	return 2
}

func (p *parser) appendGlobals(b, old []byte) []byte {
	body := appendMore(old, p.counters())
	body = appendInt(append(body, typeI64, 1, opI64Const), p.cfg.Init)
	body = append(body, opEnd, typeI32, 1, opI32Const, 0, opEnd)
	if p.cfg.Slice > 0 {
		body = appendInt(append(body, typeI64, 1, opI64Const), markOf(p.cfg.Init, p.cfg.Slice))
		body = append(body, opEnd)
	}
	return appendSection(b, secGlobal, body)
}

func (p *parser) appendExports(b, old []byte, m *Module) []byte {
	body := appendMore(old, p.counters())
	for i, name := range []string{m.Fuel, m.Stack, m.Mark}[:p.counters()] {
		body = append(appendUint(body, uint64(len(name))), name...)
		body = appendUint(append(body, 3), uint64(p.globals+i))
	}
	return appendSection(b, secExport, body)
}

func appendSection(b []byte, id byte, body []byte) []byte {
	return append(appendUint(append(b, id), uint64(len(body))), body...)
}

// resultType returns the type of a block that leaves what a function returns.
func (p *parser) resultType(number int) []byte {
	typ := p.funcs[number]
	switch t := &p.types[typ]; {
	case t.results == 0:
		return []byte{emptyBlock}
	case t.results == 1:
		return []byte{t.result}
	case t.params == 0:
		return appendInt(nil, int64(typ))
	case t.block == 0:
		p.added = append(p.added, typ)
		t.block = len(p.types) + len(p.added) - 1
		fallthrough
	default:
		return appendInt(nil, int64(t.block))
	}
}

// appendTypes returns the type section with those of blocks, and of the pause.
func (p *parser) appendTypes(old []byte) []byte {
	pause := p.pauseFunctions() > 0 && p.pauseType() >= len(p.types)
	if len(p.added) == 0 && !pause {
		return old
	}
	n := len(p.added)
	if pause {
		n++
	}
	b := appendMore(old, n)
	for _, t := range p.added {
		from := p.types[t].from
		b = append(append(b, 0x60, 0), old[from[0]:from[1]]...)
	}
	if pause {
		b = append(b, 0x60, 0, 0)
	}
	return b
}
