package host

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"
)

// wasiModule is the name of WASI preview 1, the target of most language runtimes.
//
// wazero's own implementation is not used, because the guest can choose the amount of work of some
// functions (a million pieces to write, 64 MiB of random numbers) without using fuel. Here the work
// of each function is limited or charged, and a function without a grant fails before its arguments
// are read.
//
// Source: https://github.com/WebAssembly/WASI/blob/wasi-0.1/preview1/docs.md
const wasiModule = "wasi_snapshot_preview1"

// The errors of WASI that the functions return.
const (
	wasiOK    = 0
	wasiBadF  = 8  // no such file
	wasiFault = 21 // an address is out of bounds
	wasiInval = 28
	wasiNoSys = 52 // no such function
	wasiSPipe = 70 // not a file with a position
)

// wasiPieces is the maximum number of pieces in a call.
const wasiPieces = 1024

// ProvideWASI adds all functions of WASI preview 1 to a runtime.
func ProvideWASI(ctx context.Context, runtime wazero.Runtime) error {
	b := runtime.NewHostModuleBuilder(wasiModule)
	for _, f := range wasiFunctions() {
		f.export(b)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("%s: %w", wasiModule, err)
	}
	return nil
}

// wasiFunctions returns the functions with an effect. All others fail, see wasiRefused.
func wasiFunctions() []hostFunction {
	all := []hostFunction{
		{"args_get", "ii", "i", "", wasiArgs},
		{"args_sizes_get", "ii", "i", "", wasiArgSizes},
		{"environ_get", "ii", "i", "", always(wasiOK)},
		{"environ_sizes_get", "ii", "i", "", wasiNothing},
		{"clock_res_get", "ii", "i", "", wasiResolution},
		{"clock_time_get", "iIi", "i", "", wasiTime},
		{"random_get", "ii", "i", "", wasiRandom},
		{"poll_oneoff", "iiii", "i", "", wasiPoll},
		{"sched_yield", "", "i", "", always(wasiOK)},
		{"proc_exit", "i", "", "", wasiExit},
		{"proc_raise", "i", "i", "", always(wasiNoSys)},

		// The files are stdin (0), which is empty, and stdout (1) and stderr (2), which are logged.
		{"fd_write", "iiii", "i", "", wasiWrite},
		{"fd_read", "iiii", "i", "", wasiRead},
		{"fd_fdstat_get", "ii", "i", "", wasiStat},
		{"fd_close", "i", "i", "", standardFile(wasiOK)},
		{"fd_fdstat_set_flags", "ii", "i", "", standardFile(wasiOK)},
		{"fd_seek", "iIii", "i", "", standardFile(wasiSPipe)},
		{"fd_tell", "ii", "i", "", standardFile(wasiSPipe)},
	}
	for name, params := range wasiRefused() {
		all = append(all, hostFunction{name, params, "i", "", always(wasiBadF)})
	}
	return all
}

// wasiRefused returns the parameters of the functions for files and sockets, which guests do not
// have.
func wasiRefused() map[string]string {
	return map[string]string{
		"fd_prestat_get": "ii", "fd_prestat_dir_name": "iii",
		"fd_advise": "iIIi", "fd_allocate": "iII", "fd_datasync": "i", "fd_fdstat_set_rights": "iII", "fd_filestat_get": "ii",
		"fd_filestat_set_size": "iI", "fd_filestat_set_times": "iIIi", "fd_pread": "iiiIi", "fd_pwrite": "iiiIi", "fd_readdir": "iiiIi",
		"fd_renumber": "ii", "fd_sync": "i",
		"path_create_directory": "iii", "path_filestat_get": "iiiii", "path_filestat_set_times": "iiiiIIi", "path_link": "iiiiiii",
		"path_open": "iiiiiIIii", "path_readlink": "iiiiii", "path_remove_directory": "iii", "path_rename": "iiiiii", "path_symlink": "iiiii",
		"path_unlink_file": "iii",
		"sock_accept":      "iii", "sock_recv": "iiiiii", "sock_send": "iiiii", "sock_shutdown": "ii",
	}
}

// always returns a function with that result.
func always(result int64) func(context.Context, *hostCall) int64 {
	return func(context.Context, *hostCall) int64 { return result }
}

// standardFile returns a function with that result for an existing file.
func standardFile(result int64) func(context.Context, *hostCall) int64 {
	return func(_ context.Context, c *hostCall) int64 {
		if c.u32(0) > 2 {
			return wasiBadF
		}
		return result
	}
}

// written returns the result of a function that only writes to memory.
func written(ok bool) int64 {
	if !ok {
		return wasiFault
	}
	return wasiOK
}

// wasiProgram is the only argument, the name of the program. Every process has it, so libraries
// read it without a check: those of Kubernetes do (klog), before main.
const wasiProgram = "guest\x00"

// wasiArgs implements args_get(addresses, buf).
func wasiArgs(_ context.Context, c *hostCall) int64 {
	return written(c.memory.WriteUint32Le(c.u32(0), c.u32(1)) && c.memory.WriteString(c.u32(1), wasiProgram))
}

// wasiArgSizes implements args_sizes_get(count, size).
func wasiArgSizes(_ context.Context, c *hostCall) int64 {
	return written(c.memory.WriteUint32Le(c.u32(0), 1) && c.memory.WriteUint32Le(c.u32(1), uint32(len(wasiProgram))))
}

// wasiNothing implements environ_sizes_get(count, size): there is no environment.
func wasiNothing(_ context.Context, c *hostCall) int64 {
	return written(c.memory.WriteUint32Le(c.u32(0), 0) && c.memory.WriteUint32Le(c.u32(1), 0))
}

// The supported clocks of WASI.
const (
	wasiRealtime  = 0
	wasiMonotonic = 1
)

// wasiResolution implements clock_res_get(clock, resolution): a nanosecond.
func wasiResolution(_ context.Context, c *hostCall) int64 {
	if c.u32(0) > wasiMonotonic {
		return wasiInval
	}
	return written(c.memory.WriteUint64Le(c.u32(1), 1))
}

// wasiTime implements clock_time_get(clock, precision, time).
func wasiTime(_ context.Context, c *hostCall) int64 {
	c.charge(clockFuel)
	switch c.u32(0) {
	case wasiRealtime:
		return written(c.memory.WriteUint64Le(c.u32(2), uint64(c.scope.wallTime())))
	case wasiMonotonic:
		return written(c.memory.WriteUint64Le(c.u32(2), uint64(c.scope.monotonicTime())))
	}
	return wasiInval
}

// wasiRandom implements random_get(buf, size).
func wasiRandom(_ context.Context, c *hostCall) int64 {
	buf, ok := c.memory.Read(c.u32(0), c.u32(1))
	if ok {
		c.charge(c.scope.randomFuel(len(buf)))
		c.scope.fillRandom(buf)
	}
	return written(ok)
}

// wasiPoll implements poll_oneoff(subscriptions, events, n, count). All events have happened
// already, so it never waits.
func wasiPoll(_ context.Context, c *hostCall) int64 {
	const subscription, event = 48, 32
	n := c.u32(2)
	if n == 0 || n > wasiPieces {
		return wasiInval
	}
	c.charge(copyFuel(int(n) * (subscription + event)))
	subscriptions, ok := c.memory.Read(c.u32(0), n*subscription)
	events, writable := c.memory.Read(c.u32(1), n*event)
	if !ok || !writable {
		return wasiFault
	}
	for i := range int(n) {
		from, to := subscriptions[i*subscription:][:subscription], events[i*event:][:event]
		user, kind := binary.LittleEndian.Uint64(from), from[8]
		if kind == 0 {
			c.scope.sleep(wasiTimeout(c.scope, from))
		}
		clear(to)
		binary.LittleEndian.PutUint64(to, user)
		to[10] = kind
	}
	return written(c.memory.WriteUint32Le(c.u32(3), n))
}

// wasiTimeout returns the wait of a subscription to a clock, in nanoseconds.
func wasiTimeout(s *Scope, subscription []byte) int64 {
	clock, at := binary.LittleEndian.Uint32(subscription[16:]), int64(binary.LittleEndian.Uint64(subscription[24:]))
	if absolute := subscription[40]&1 != 0; !absolute {
		return at
	}
	if clock == wasiRealtime {
		return at - s.wallTime()
	}
	return at - s.monotonicTime()
}

// wasiExit implements proc_exit(code): the instance is not used again.
func wasiExit(_ context.Context, c *hostCall) int64 {
	panic(sys.NewExitError(c.u32(0))) //nolint:forbidigo // how wazero unwinds a guest
}

// wasiWrite implements fd_write(fd, pieces, n, written). A piece is an address and a length.
func wasiWrite(_ context.Context, c *hostCall) int64 {
	fd, n := c.u32(0), c.u32(2)
	switch {
	case fd != 1 && fd != 2:
		return wasiBadF
	case n > wasiPieces:
		return wasiInval
	}
	pieces, ok := c.memory.Read(c.u32(1), 8*n)
	if !ok {
		return wasiFault
	}
	sum := uint32(0)
	for ; len(pieces) > 0; pieces = pieces[8:] {
		text, ok := c.memory.Read(binary.LittleEndian.Uint32(pieces), binary.LittleEndian.Uint32(pieces[4:]))
		if !ok {
			return wasiFault
		}
		c.charge(linesFuel(text))
		_, _ = c.scope.output[fd-1].Write(text)
		sum += uint32(len(text))
	}
	return written(c.memory.WriteUint32Le(c.u32(3), sum))
}

// wasiRead implements fd_read(fd, pieces, n, read): stdin is at its end.
func wasiRead(_ context.Context, c *hostCall) int64 {
	if c.u32(0) != 0 {
		return wasiBadF
	}
	return written(c.memory.WriteUint32Le(c.u32(3), 0))
}

// wasiStat implements fd_fdstat_get(fd, stat). The standard files are terminals, so that runtimes
// write output line by line.
func wasiStat(_ context.Context, c *hostCall) int64 {
	if c.u32(0) > 2 {
		return wasiBadF
	}
	stat, ok := c.memory.Read(c.u32(1), 24)
	if !ok {
		return wasiFault
	}
	const characterDevice, read, write = 2, 1 << 1, 1 << 6
	clear(stat)
	stat[0] = characterDevice
	Host := uint64(write)
	if c.u32(0) == 0 {
		Host = read
	}
	binary.LittleEndian.PutUint64(stat[8:], Host)
	return wasiOK
}
