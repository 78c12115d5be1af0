package main

// The functions of Extism. An address of a block is a uint64.

//go:wasmimport extism:host/env alloc
func alloc(size uint64) uint64

//go:wasmimport extism:host/env free
func free(at uint64)

//go:wasmimport extism:host/env length
func length(at uint64) uint64

//go:wasmimport extism:host/env length_unsafe
func lengthUnsafe(at uint64) uint64

//go:wasmimport extism:host/env load_u8
func load8(at uint64) uint32

//go:wasmimport extism:host/env load_u64
func load64(at uint64) uint64

//go:wasmimport extism:host/env store_u8
func store8(at uint64, value uint32)

//go:wasmimport extism:host/env store_u64
func store64(at, value uint64)

//go:wasmimport extism:host/env memory_bytes
func memoryBytes() uint64

//go:wasmimport extism:host/env reset
func reset()

//go:wasmimport extism:host/env input_set
func inputSet(at, size uint64)

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_offset
func inputOffset() uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoad8(offset uint64) uint32

//go:wasmimport extism:host/env input_load_u64
func inputLoad64(offset uint64) uint64

//go:wasmimport extism:host/env output_set
func outputSet(at, size uint64)

//go:wasmimport extism:host/env output_length
func outputLength() uint64

//go:wasmimport extism:host/env output_offset
func outputOffset() uint64

//go:wasmimport extism:host/env error_set
func errorSet(at uint64)

//go:wasmimport extism:host/env error_get
func errorGet() uint64

//go:wasmimport extism:host/env config_get
func configGet(key uint64) uint64

//go:wasmimport extism:host/env var_get
func varGet(key uint64) uint64

//go:wasmimport extism:host/env var_set
func varSet(key, value uint64)

//go:wasmimport extism:host/env http_request
func httpRequest(request, body uint64) uint64

//go:wasmimport extism:host/env http_status_code
func httpStatusCode() int32

//go:wasmimport extism:host/env http_headers
func httpHeaders() uint64

//go:wasmimport extism:host/env get_log_level
func logLevel() int32

//go:wasmimport extism:host/env log_trace
func logTrace(at uint64)

//go:wasmimport extism:host/env log_debug
func logDebug(at uint64)

//go:wasmimport extism:host/env log_info
func logInfo(at uint64)

//go:wasmimport extism:host/env log_warn
func logWarn(at uint64)

//go:wasmimport extism:host/env log_error
func logError(at uint64)

//go:wasmimport extism:host/user lookup
func lookup(request uint64) uint64

// put returns a new block with a text.
func put(text string) uint64 {
	at := alloc(uint64(len(text)))
	i := 0
	for ; i+8 <= len(text); i += 8 {
		word := uint64(0)
		for k := range 8 {
			word |= uint64(text[i+k]) << (8 * k)
		}
		store64(at+uint64(i), word)
	}
	for ; i < len(text); i++ {
		store8(at+uint64(i), uint32(text[i]))
	}
	return at
}

// get returns the text of a block.
func get(at uint64) string {
	text := make([]byte, length(at))
	for i := range text {
		text[i] = byte(load8(at + uint64(i)))
	}
	return string(text)
}

// input returns the delta.
func input() string {
	text := make([]byte, 0, inputLength()+7)
	for i := uint64(0); i < inputLength(); i += 8 {
		word := inputLoad64(i)
		for k := range 8 {
			text = append(text, byte(word>>(8*k)))
		}
	}
	return string(text[:inputLength()])
}

func output(text string) { outputSet(put(text), uint64(len(text))) }
