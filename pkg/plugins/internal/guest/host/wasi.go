package host

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/files"
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
		{"environ_get", "ii", "i", "", wasiEnv},
		{"environ_sizes_get", "ii", "i", "", wasiEnvSizes},
		{"clock_res_get", "ii", "i", "", wasiResolution},
		{"clock_time_get", "iIi", "i", "", wasiTime},
		{"random_get", "ii", "i", "", wasiRandom},
		{"poll_oneoff", "iiii", "i", "", wasiPoll},
		{"sched_yield", "", "i", "", always(wasiOK)},
		{"proc_exit", "i", "", "", wasiExit},
		{"proc_raise", "i", "i", "", always(wasiNoSys)},

		// The files are stdin (0), which is empty, and stdout (1) and stderr (2), which are logged. A
		// command has a [Console] and files, see wasi_files.go.
		{"fd_write", "iiii", "i", "", wasiWrite},
		{"fd_read", "iiii", "i", "", wasiRead},
		{"fd_fdstat_get", "ii", "i", "", wasiStat},
		{"fd_fdstat_set_flags", "ii", "i", "", standardFile(wasiOK)},
		{"fd_close", "i", "i", "", ofFile(wasiClose, standardFile(wasiOK))},
		{"fd_seek", "iIii", "i", "", ofFile(wasiSeek, standardFile(wasiSPipe))},
		{"fd_tell", "ii", "i", "", ofFile(wasiTell, standardFile(wasiSPipe))},
		{"fd_filestat_get", "ii", "i", "", wasiFileStat},
		{"fd_pread", "iiiIi", "i", "", ofFile(wasiReadAt, always(wasiBadF))},
		{"fd_readdir", "iiiIi", "i", "", ofFile(wasiReadFolder, always(wasiBadF))},
		{"fd_prestat_get", "ii", "i", "", ofFile(wasiGranted, always(wasiBadF))},
		{"fd_prestat_dir_name", "iii", "i", "", ofFile(wasiGrantedName, always(wasiBadF))},
		{"path_open", "iiiiiIIii", "i", "", ofFile(wasiOpen, always(wasiBadF))},
		{"path_filestat_get", "iiiii", "i", "", ofFile(wasiPathStat, always(wasiBadF))},
		{"path_readlink", "iiiiii", "i", "", ofFile(wasiReadLink, always(wasiBadF))},
	}
	for name, params := range wasiRefused() {
		all = append(all, hostFunction{name, params, "i", "", ofFile(always(int64(files.ReadOnly)), always(wasiBadF))})
	}
	return all
}

// wasiRefused returns the parameters of the functions that change files, and of those for sockets.
func wasiRefused() map[string]string {
	return map[string]string{
		"fd_advise": "iIIi", "fd_allocate": "iII", "fd_datasync": "i", "fd_fdstat_set_rights": "iII",
		"fd_filestat_set_size": "iI", "fd_filestat_set_times": "iIIi", "fd_pwrite": "iiiIi",
		"fd_renumber": "ii", "fd_sync": "i",
		"path_create_directory": "iii", "path_filestat_set_times": "iiiiIIi", "path_link": "iiiiiii",
		"path_remove_directory": "iii", "path_rename": "iiiiii", "path_symlink": "iiiii",
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
const wasiProgram = "guest"

// wasiArgs implements args_get(addresses, buf).
func wasiArgs(_ context.Context, c *hostCall) int64 { return c.texts(c.scope.host.args()) }

// wasiArgSizes implements args_sizes_get(count, size).
func wasiArgSizes(_ context.Context, c *hostCall) int64 { return c.textSizes(c.scope.host.args()) }

// wasiEnv implements environ_get(addresses, buf).
func wasiEnv(_ context.Context, c *hostCall) int64 { return c.texts(c.scope.host.environment()) }

// wasiEnvSizes implements environ_sizes_get(count, size).
func wasiEnvSizes(_ context.Context, c *hostCall) int64 {
	return c.textSizes(c.scope.host.environment())
}

// textSizes writes the number of some texts and their size with a 0 behind each.
func (c *hostCall) textSizes(all []string) int64 {
	size := 0
	for _, text := range all {
		size += len(text) + 1
	}
	return written(c.memory.WriteUint32Le(c.u32(0), uint32(len(all))) && c.memory.WriteUint32Le(c.u32(1), uint32(size))) //nolint:gosec // bounded by the configuration
}

// texts writes the addresses of some texts, and the texts with a 0 behind each.
func (c *hostCall) texts(all []string) int64 {
	list, at := c.u32(0), c.u32(1)
	for _, text := range all {
		c.charge(copyFuel(len(text) + 1))
		if !c.memory.WriteUint32Le(list, at) || !c.memory.WriteString(at, text+"\x00") {
			return wasiFault
		}
		list, at = list+4, at+uint32(len(text)+1) //nolint:gosec // bounded by the configuration
	}
	return wasiOK
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
		if console := c.scope.fds.console; console != nil && fd == 1 {
			console.Write(text)
		} else {
			_, _ = c.scope.fds.output[fd-1].Write(text)
		}
		sum += uint32(len(text))
	}
	return written(c.memory.WriteUint32Le(c.u32(3), sum))
}

// wasiRead implements fd_read(fd, pieces, n, read). Without a console, stdin is at its end.
func wasiRead(_ context.Context, c *hostCall) int64 {
	fd, table := c.u32(0), c.scope.fds.files
	switch {
	case fd == 0 && c.scope.fds.console == nil:
		return written(c.memory.WriteUint32Le(c.u32(3), 0))
	case fd == 0:
		return c.scatter(c.u32(3), func(n int) ([]byte, int64) { return c.scope.fds.console.Read(n), wasiOK })
	case table == nil || !table.Has(fd):
		return wasiBadF
	}
	return c.scatter(c.u32(3), func(n int) ([]byte, int64) {
		data, err := table.Read(fd, n)
		return data, int64(err)
	})
}

// wasiStat implements fd_fdstat_get(fd, stat). The standard files are terminals, so that runtimes
// write output line by line.
func wasiStat(_ context.Context, c *hostCall) int64 {
	if c.u32(0) > 2 {
		return c.rightsOfFile()
	}
	stat, ok := c.memory.Read(c.u32(1), 24)
	if !ok {
		return wasiFault
	}
	const read, write = 1 << 1, 1 << 6
	clear(stat)
	stat[0] = wasiDevice
	rights := uint64(write)
	if c.u32(0) == 0 {
		rights = read
	}
	binary.LittleEndian.PutUint64(stat[8:], rights)
	return wasiOK
}

// The types of files.
const (
	wasiDevice  = 2
	wasiFolder  = 3
	wasiRegular = 4
)
