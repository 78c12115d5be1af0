//go:build !wasip1

// Package host contains the host functions: in a module those of the router, elsewhere those of a
// test. The linker removes unused functions, so a module imports only the functions that its
// handler uses.
package host

// denied is the result of a function that is not granted.
const denied = -2

// Functions are the host functions, with the results of the ABI. A nil function is not granted.
type Functions struct {
	KVGet    func(key string, buf []byte) int32
	KVSet    func(key string, value []byte, ttl int64) int32
	KVDelete func(key string) int32
	Lookup   func(request, buf []byte) int32
	Emit     func(delta uint32, event []byte) int32
	HTTP     func(request, buf []byte) int32
	Random   func(buf []byte) int32
	Field    func(delta, which uint32, path string) int64
}

// router contains the functions that a test has set.
var router Functions

// Use sets the functions of a test and returns the previous ones.
func Use(f Functions) (before Functions) {
	before, router = router, f
	return before
}

// Log does nothing: outside a module, slog is unchanged.
func Log(int32, string) {}

// KVGet reads the value of a key into buf and returns its length.
func KVGet(key string, buf []byte) int32 {
	if router.KVGet == nil {
		return denied
	}
	return router.KVGet(key, buf)
}

// KVSet stores a value for ttl milliseconds; 0: without expiry.
func KVSet(key string, value []byte, ttl int64) int32 {
	if router.KVSet == nil {
		return denied
	}
	return router.KVSet(key, value, ttl)
}

// KVDelete removes a key.
func KVDelete(key string) int32 {
	if router.KVDelete == nil {
		return denied
	}
	return router.KVDelete(key)
}

// Lookup queries the cache and returns the length of the answer.
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

// HTTP sends a request and returns the length of the response.
func HTTP(request, buf []byte) int32 {
	if router.HTTP == nil {
		return denied
	}
	return router.HTTP(request, buf)
}

// Field finds a field of an object of the batch. Any result below 0 but [NotFound] leaves the
// search to the caller.
func Field(delta, which uint32, path string) int64 {
	if router.Field == nil {
		return denied
	}
	return router.Field(delta, which, path)
}

// Random fills buf with random bytes.
func Random(buf []byte) int32 {
	if router.Random == nil {
		return denied
	}
	return router.Random(buf)
}
