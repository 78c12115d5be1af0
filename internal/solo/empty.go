package solo

import "bytes"

// emptyModule returns a module of the ABI rtr_v1 (docs/ABI.md) whose handler makes no events:
//
//	(module
//	  (memory (export "memory") 65)
//	  (func (export "rtr_abi_version") (result i32) i32.const 1)
//	  (func (export "rtr_alloc") (param i32) (result i32) i32.const 1024)
//	  (func (export "rtr_handle") (param i32 i32) (result i64) i64.const 0))
//
// The memory has room for a batch of 4 MiB.
func emptyModule() []byte {
	const (
		i32, i64           = 0x7f, 0x7e
		constI32, constI64 = 0x41, 0x42
		function, memory   = 0x00, 0x02 // of an export
		end                = 0x0b
	)
	var m bytes.Buffer
	m.WriteString("\x00asm\x01\x00\x00\x00")
	section := func(id byte, items ...[]byte) {
		content := append([]byte{byte(len(items))}, bytes.Join(items, nil)...)
		m.Write(append([]byte{id, byte(len(content))}, content...))
	}
	export := func(name string, kind, index byte) []byte {
		return append(append([]byte{byte(len(name))}, name...), kind, index)
	}
	body := func(code ...byte) []byte { return append([]byte{byte(len(code) + 2), 0}, append(code, end)...) }
	const types, functions, memories, exports, codes = 1, 3, 5, 7, 10
	section(types,
		[]byte{0x60, 0, 1, i32},
		[]byte{0x60, 1, i32, 1, i32},
		[]byte{0x60, 2, i32, i32, 1, i64})
	section(functions, []byte{0}, []byte{1}, []byte{2})
	section(memories, []byte{0, 0xc1, 0x00}) // 65 pages as LEB128
	section(exports,
		export("memory", memory, 0),
		export("rtr_abi_version", function, 0),
		export("rtr_alloc", function, 1),
		export("rtr_handle", function, 2))
	section(codes,
		body(constI32, 1),
		body(constI32, 0x80, 0x08), // 1024 as LEB128
		body(constI64, 0))
	return m.Bytes()
}
