//go:build wasip1

// Command scan is a guest that reads each byte of an object: a handler of the kind wasm, and two
// functions for a host without an ABI, which writes the object into the guest's memory.
package main

import (
	"unsafe"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

var (
	_      = deltarouter.Handle(handle)
	buffer []byte
	found  int32
)

func main() {}

// handle makes no event.
func handle(d deltarouter.Delta) ([]deltarouter.Event, error) {
	found = count(d.Object)
	return nil, nil
}

//go:wasmexport alloc
func alloc(n int32) unsafe.Pointer {
	if int(n) > cap(buffer) {
		buffer = make([]byte, n)
	}
	return unsafe.Pointer(unsafe.SliceData(buffer))
}

//go:wasmexport scan
func scan(n int32) int32 { return count(buffer[:n]) }

// count counts the strings of a JSON text.
func count(text []byte) (n int32) {
	inside, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			if inside = !inside; inside {
				n++
			}
		}
	}
	return n
}
