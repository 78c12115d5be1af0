// Package host contains the host functions: in a module those of the router, elsewhere those of a
// test. The linker removes unused functions, so a module imports only the functions that its
// handler uses.
package host

import "unsafe"

//go:wasmimport rtr_v1 log
func hostLog(level int32, text unsafe.Pointer, size uint32) int32

//go:wasmimport rtr_v1 kv_get
func hostKVGet(key unsafe.Pointer, keySize uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport rtr_v1 kv_set
func hostKVSet(key unsafe.Pointer, keySize uint32, value unsafe.Pointer, size uint32, ttl int64) int32

//go:wasmimport rtr_v1 kv_del
func hostKVDelete(key unsafe.Pointer, keySize uint32) int32

//go:wasmimport rtr_v1 lookup
func hostLookup(request unsafe.Pointer, size uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport rtr_v1 emit
func hostEmit(delta uint32, event unsafe.Pointer, size uint32) int32

//go:wasmimport rtr_v1 http
func hostHTTP(request unsafe.Pointer, size uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport rtr_v1 random
func hostRandom(buf unsafe.Pointer, size uint32) int32

//go:wasmimport rtr_v1 field
func hostField(delta, which uint32, path unsafe.Pointer, pathSize uint32) int64

func text(s string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(s)), uint32(len(s))
}

func data(b []byte) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))
}

// Log writes a line into the router's log.
func Log(level int32, line string) {
	p, n := text(line)
	hostLog(level, p, n)
}

// KVGet reads the value of a key into buf and returns its length.
func KVGet(key string, buf []byte) int32 {
	k, kn := text(key)
	b, bn := data(buf)
	return hostKVGet(k, kn, b, bn)
}

// KVSet stores a value for ttl milliseconds; 0: without expiry.
func KVSet(key string, value []byte, ttl int64) int32 {
	k, kn := text(key)
	v, vn := data(value)
	return hostKVSet(k, kn, v, vn, ttl)
}

// KVDelete removes a key.
func KVDelete(key string) int32 {
	k, kn := text(key)
	return hostKVDelete(k, kn)
}

// Lookup queries the cache and returns the length of the answer.
func Lookup(request, buf []byte) int32 {
	r, rn := data(request)
	b, bn := data(buf)
	return hostLookup(r, rn, b, bn)
}

// Emit emits an event for a delta of the batch.
func Emit(delta uint32, event []byte) int32 {
	e, en := data(event)
	return hostEmit(delta, e, en)
}

// HTTP sends a request and returns the length of the response.
func HTTP(request, buf []byte) int32 {
	r, rn := data(request)
	b, bn := data(buf)
	return hostHTTP(r, rn, b, bn)
}

// Field finds a field of an object of the batch.
func Field(delta, which uint32, path string) int64 {
	p, n := text(path)
	return hostField(delta, which, p, n)
}

// Random fills buf with random bytes.
func Random(buf []byte) int32 {
	b, bn := data(buf)
	return hostRandom(b, bn)
}
