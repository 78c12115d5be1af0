//go:build wasip1

// Command extism is the guest for Extism's host, which passes its input eight bytes at a time. It
// works like Extism's own kit.
package main

import (
	"encoding/binary"

	"github.com/deltarouter/deltarouter/test/bench/guests/testdata/parse"
)

func main() {}

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u64
func inputLoad8(offset uint64) uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoad1(offset uint64) uint32

//go:wasmexport restarts
func restarts() int32 {
	n := inputLength()
	text := make([]byte, n)
	i := uint64(0)
	for ; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(text[i:], inputLoad8(i))
	}
	for ; i < n; i++ {
		text[i] = byte(inputLoad1(i))
	}
	return parse.Restarts(text)
}
