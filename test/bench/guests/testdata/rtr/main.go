//go:build wasip1

// Command rtr is the guest for hosts that write into its memory.
package main

import (
	"unsafe"

	"github.com/deltarouter/deltarouter/test/bench/guests/testdata/parse"
)

func main() {}

var buffer []byte

//go:wasmexport alloc
func alloc(n int32) unsafe.Pointer {
	buffer = make([]byte, n)
	return unsafe.Pointer(unsafe.SliceData(buffer))
}

//go:wasmexport restarts
func restarts(n int32) int32 { return parse.Restarts(buffer[:n]) }
