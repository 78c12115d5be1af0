package deltarouter

import (
	"log/slog"
	"unsafe"

	"github.com/deltarouter/deltarouter/sdk/go/internal/host"
)

// abiVersion is the version of rtr_v1 that this package implements.
const abiVersion = 1

// instance is the state of the exports. The host makes one call at a time.
var instance struct {
	server server
	input  []byte // the host writes a batch here
	reason []byte // the reason of a failed start
}

//go:wasmexport rtr_abi_version
func rtrABIVersion() uint32 { return abiVersion }

//go:wasmexport rtr_alloc
func rtrAlloc(size uint32) uint32 {
	if int(size) > len(instance.input) {
		instance.input = nil // so that the collector can free it before the larger one is allocated
		instance.input = aligned(int(size))
	}
	return address(instance.input)
}

//go:wasmexport rtr_init
func rtrInit(config, size uint32) uint32 {
	log := newLogger(host.Log)
	slog.SetDefault(log)
	if err := start(input(config, size)); err != nil {
		message := err.Error()
		message = message[:min(len(message), maxMessage)]
		instance.reason = append(aligned(4)[:0], byte(len(message)), byte(len(message)>>8), 0, 0)
		instance.reason = append(instance.reason, message...)
		return address(instance.reason)
	}
	instance.server = server{handle: plugin.handle, logf: logPanic(log)}
	return 0
}

//go:wasmexport rtr_handle
func rtrHandle(batch, size uint32) uint64 {
	answer, ok := instance.server.serve(input(batch, size))
	switch {
	case !ok:
		return verdictFail
	case len(answer) == 0:
		return verdictOK
	}
	return uint64(address(answer))<<32 | uint64(len(answer))
}

// input returns the bytes that the host wrote.
func input(ptr, size uint32) []byte {
	if off := ptr - address(instance.input); size > 0 && int(off)+int(size) <= len(instance.input) {
		return instance.input[off:][:size]
	}
	return nil
}

func address(b []byte) uint32 { return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
