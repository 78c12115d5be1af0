package main

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// piece is an iovec of WASI.
type piece struct{ at, size uint32 }

//go:wasmimport wasi_snapshot_preview1 fd_write
//go:noescape
func fdWrite(fd int32, pieces unsafe.Pointer, n uint32, written unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 fd_read
//go:noescape
func fdRead(fd int32, pieces unsafe.Pointer, n uint32, read unsafe.Pointer) uint32

// pieces writes a text between empty pieces, as the C library does, after writes and reads of empty
// pieces alone, which must not wait for input.
func pieces(text string) {
	b := []byte(text)
	at := uint32(uintptr(unsafe.Pointer(&b[0])))
	all := [3]piece{{0, 0}, {at, uint32(len(b))}, {at, 0}}
	var n uint32
	check := func(what string, code, want uint32) {
		if code != 0 || n != want {
			fmt.Fprintln(os.Stderr, what, "returns", code, "and", n)
			os.Exit(1)
		}
		n = 99
	}
	check("an empty write", fdWrite(1, unsafe.Pointer(&all), 1, unsafe.Pointer(&n)), 0)
	check("a write without pieces", fdWrite(1, unsafe.Pointer(&all), 0, unsafe.Pointer(&n)), 0)
	check("an empty read", fdRead(0, unsafe.Pointer(&all), 1, unsafe.Pointer(&n)), 0)
	check("a read without pieces", fdRead(0, unsafe.Pointer(&all), 0, unsafe.Pointer(&n)), 0)
	check("a write", fdWrite(1, unsafe.Pointer(&all), 3, unsafe.Pointer(&n)), uint32(len(b)))
	runtime.KeepAlive(b)
}

// smallReads reads one byte at a time, and computes after each. The line of the pod "bad" takes
// more than one delta may.
func smallReads() {
	var line []byte
	for n, one := 1, make([]byte, 1); ; {
		if k, err := os.Stdin.Read(one); k == 0 || err != nil {
			return
		}
		if line = append(line, one[0]); one[0] != '\n' {
			if len(line) > 4000 {
				compute()
			}
			continue
		}
		answer(n)
		line = line[:0]
		n++
	}
}

//go:noinline
func compute() (sum int) {
	for i := range 1_000_000 {
		sum += i ^ sum
	}
	return sum
}
