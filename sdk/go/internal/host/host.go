//go:build !wasip1

// Package host is the border to the router: in a module its host functions, elsewhere those of a
// test. The linker drops what is not called, so a module imports only what its handler uses.
package host

// denied is what a function returns that is not granted.
const denied = -2

// Functions are the host functions, with the results of the ABI. What is nil is not granted.
type Functions struct {
	KVGet    func(key string, buf []byte) int32
	KVSet    func(key string, value []byte, ttl int64) int32
	KVDelete func(key string) int32
	Lookup   func(request, buf []byte) int32
	Emit     func(delta uint32, event []byte) int32
	HTTP     func(request, buf []byte) int32
	Random   func(buf []byte) int32
}

// router is what a test put in the router's place.
var router Functions

// Use puts f in the router's place and returns what was there.
func Use(f Functions) (before Functions) {
	before, router = router, f
	return before
}

// Log does nothing: natively slog is left alone.
func Log(int32, string) {}

// KVGet reads the value of a key into buf and returns its length.
func KVGet(key string, buf []byte) int32 {
	if router.KVGet == nil {
		return denied
	}
	return router.KVGet(key, buf)
}

// KVSet keeps a value for ttl milliseconds; 0: for ever.
func KVSet(key string, value []byte, ttl int64) int32 {
	if router.KVSet == nil {
		return denied
	}
	return router.KVSet(key, value, ttl)
}

// KVDelete forgets a key.
func KVDelete(key string) int32 {
	if router.KVDelete == nil {
		return denied
	}
	return router.KVDelete(key)
}

// Lookup asks the cache and returns the length of the answer.
func Lookup(request, buf []byte) int32 {
	if router.Lookup == nil {
		return denied
	}
	return router.Lookup(request, buf)
}

// Emit emits an event for a delta of the batch.
func Emit(delta uint32, event []byte) int32 {
	if router.Emit == nil {
		return denied
	}
	return router.Emit(delta, event)
}

// HTTP does a request and returns the length of the answer.
func HTTP(request, buf []byte) int32 {
	if router.HTTP == nil {
		return denied
	}
	return router.HTTP(request, buf)
}

// Random fills buf.
func Random(buf []byte) int32 {
	if router.Random == nil {
		return denied
	}
	return router.Random(buf)
}
