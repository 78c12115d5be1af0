package host

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/files"
)

// Program is the surroundings of a command: a guest with a main function, stdin and stdout.
type Program struct {
	Args  []string    // without the name of the program
	Env   []string    // NAME=value
	Files *files.Tree // nil: none
}

// Command makes the guests of a host commands, each with a [Console].
func (r *Host) Command(p *Program) { r.program = p }

// args returns the arguments of guests.
func (r *Host) args() []string {
	if r.program == nil {
		return []string{wasiProgram}
	}
	return slices.Concat([]string{wasiProgram}, r.program.Args)
}

// environment returns the environment of guests.
func (r *Host) environment() []string {
	if r.program == nil {
		return nil
	}
	return r.program.Env
}

// Console is stdin and stdout of a command. Its methods may end the guest by a panic.
type Console interface {
	// Read returns between 1 and most bytes of stdin, or none at its end. It may suspend the guest.
	Read(most int) []byte
	// Write gets a piece of stdout, which it must copy.
	Write(text []byte)
}

// Connect connects the guest to a console, before any of its code runs. It returns the log for the
// lines of stdout that are for people.
func (s *Scope) Connect(c Console) *lines.Writer {
	s.fds.console = c
	return s.fds.output[0]
}

const (
	wasiPath    = 4096 // the maximum length of a path
	wasiTooLong = 37
)

// fileFuel is the fuel of finding a file, for each name in its path.
const fileFuel = 200

// ofFile returns the first function for a guest with files and a descriptor that is none of stdin,
// stdout and stderr, and the second one otherwise.
func ofFile(file, standard func(context.Context, *hostCall) int64) func(context.Context, *hostCall) int64 {
	return func(ctx context.Context, c *hostCall) int64 {
		if c.scope.fds.files == nil || c.u32(0) < files.First {
			return standard(ctx, c)
		}
		return file(ctx, c)
	}
}

// path reads a path from the memory of the guest.
func (c *hostCall) path(at, size uint32) (string, int64) {
	if size > wasiPath {
		return "", wasiTooLong
	}
	text, ok := c.memory.Read(at, size)
	if !ok {
		return "", wasiFault
	}
	c.charge(fileFuel * int64(1+size/2))
	return string(text), wasiOK
}

// scatter writes data into the pieces of fd_read(fd, pieces, n, read) and fd_pread, and the number
// of bytes to an address. Libraries pass empty pieces; if all are empty, it reads nothing.
func (c *hostCall) scatter(count uint32, read func(most int) ([]byte, int64)) int64 {
	list, n := c.u32(1), c.u32(2)
	if n > wasiPieces {
		return wasiInval
	}
	pieces, ok := c.memory.Read(list, 8*n)
	if !ok {
		return wasiFault
	}
	sum := uint32(0)
	for ; len(pieces) > 0; pieces = pieces[8:] {
		at, size := binary.LittleEndian.Uint32(pieces), binary.LittleEndian.Uint32(pieces[4:])
		if size == 0 {
			continue
		}
		data, errno := read(int(size))
		if errno != wasiOK {
			return errno
		}
		c.charge(copyFuel(len(data)))
		if !c.memory.Write(at, data) {
			return wasiFault
		}
		sum += uint32(len(data))                       //nolint:gosec // at most size
		if c.u32(0) == 0 || uint32(len(data)) < size { //nolint:gosec // at most size
			break // a further read of stdin would wait
		}
	}
	return written(c.memory.WriteUint32Le(count, sum))
}

// wasiReadAt implements fd_pread(fd, pieces, n, offset, read).
func wasiReadAt(_ context.Context, c *hostCall) int64 {
	at := c.stack[3]
	return c.scatter(c.u32(4), func(n int) ([]byte, int64) {
		data, err := c.scope.fds.files.ReadAt(c.u32(0), n, at)
		at += uint64(len(data))
		return data, int64(err)
	})
}

// wasiClose implements fd_close(fd).
func wasiClose(_ context.Context, c *hostCall) int64 { return int64(c.scope.fds.files.Close(c.u32(0))) }

// wasiSeek implements fd_seek(fd, offset, whence, position).
func wasiSeek(_ context.Context, c *hostCall) int64 {
	at, err := c.scope.fds.files.Seek(c.u32(0), int64(c.stack[1]), c.u32(2)) //nolint:gosec // an i64
	if err != files.OK {
		return int64(err)
	}
	return written(c.memory.WriteUint64Le(c.u32(3), uint64(at))) //nolint:gosec // not negative
}

// wasiTell implements fd_tell(fd, position).
func wasiTell(_ context.Context, c *hostCall) int64 {
	at, err := c.scope.fds.files.Seek(c.u32(0), 0, 1)
	if err != files.OK {
		return int64(err)
	}
	return written(c.memory.WriteUint64Le(c.u32(1), uint64(at))) //nolint:gosec // not negative
}

// wasiGranted implements fd_prestat_get(fd, stat): the root folder is the only one.
func wasiGranted(_ context.Context, c *hostCall) int64 {
	if c.u32(0) != files.First {
		return wasiBadF
	}
	return written(c.memory.WriteUint64Le(c.u32(1), 1<<32)) // a folder, with a name of one byte
}

// wasiGrantedName implements fd_prestat_dir_name(fd, name, size).
func wasiGrantedName(_ context.Context, c *hostCall) int64 {
	if c.u32(0) != files.First {
		return wasiBadF
	}
	if c.u32(2) < 1 {
		return wasiTooLong
	}
	return written(c.memory.WriteString(c.u32(1), "/"))
}

// wasiOpen implements path_open(fd, lookup, path, size, open, rights, inherited, flags, opened).
func wasiOpen(_ context.Context, c *hostCall) int64 {
	const create, folder, truncate = 1, 2, 8
	path, errno := c.path(c.u32(2), c.u32(3))
	if errno != wasiOK {
		return errno
	}
	if c.u32(4)&(create|truncate) != 0 {
		return int64(files.ReadOnly)
	}
	fd, err := c.scope.fds.files.Open(c.u32(0), path, c.u32(4)&folder != 0)
	if err != files.OK {
		return int64(err)
	}
	return written(c.memory.WriteUint32Le(c.u32(8), fd))
}

// wasiPathStat implements path_filestat_get(fd, lookup, path, size, stat).
func wasiPathStat(_ context.Context, c *hostCall) int64 {
	path, errno := c.path(c.u32(2), c.u32(3))
	if errno != wasiOK {
		return errno
	}
	info, err := c.scope.fds.files.StatPath(c.u32(0), path)
	if err != files.OK {
		return int64(err)
	}
	return c.stat(c.u32(4), info.Inode, typeOf(info), info.Size)
}

// wasiFileStat implements fd_filestat_get(fd, stat).
func wasiFileStat(_ context.Context, c *hostCall) int64 {
	switch {
	case c.scope.fds.console == nil:
		return wasiBadF
	case c.u32(0) < files.First:
		return c.stat(c.u32(1), 0, wasiDevice, 0)
	case c.scope.fds.files == nil:
		return wasiBadF
	}
	info, err := c.scope.fds.files.Stat(c.u32(0))
	if err != files.OK {
		return int64(err)
	}
	return c.stat(c.u32(1), info.Inode, typeOf(info), info.Size)
}

// stat writes a filestat. All times are 0, so that they have no effect on guests.
func (c *hostCall) stat(at uint32, inode uint64, kind byte, size uint64) int64 {
	var stat [64]byte
	stat[0] = 1 // the device
	binary.LittleEndian.PutUint64(stat[8:], inode)
	stat[16] = kind
	stat[24] = 1 // links
	binary.LittleEndian.PutUint64(stat[32:], size)
	return written(c.memory.Write(at, stat[:]))
}

func typeOf(info files.Info) byte {
	if info.Folder {
		return wasiFolder
	}
	return wasiRegular
}

// rightsOfFile implements fd_fdstat_get(fd, stat) for files.
func (c *hostCall) rightsOfFile() int64 {
	if c.scope.fds.files == nil {
		return wasiBadF
	}
	info, err := c.scope.fds.files.Stat(c.u32(0))
	if err != files.OK {
		return int64(err)
	}
	// read, seek, set flags, tell, advise, open, readdir, readlink, stat by path and descriptor
	const rights = 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<7 | 1<<13 | 1<<14 | 1<<15 | 1<<18 | 1<<21
	var stat [24]byte
	stat[0] = typeOf(info)
	binary.LittleEndian.PutUint64(stat[8:], rights)
	binary.LittleEndian.PutUint64(stat[16:], rights)
	return written(c.memory.Write(c.u32(1), stat[:]))
}

// wasiReadLink implements path_readlink: there are no links.
func wasiReadLink(_ context.Context, c *hostCall) int64 {
	path, errno := c.path(c.u32(1), c.u32(2))
	if errno != wasiOK {
		return errno
	}
	if _, err := c.scope.fds.files.StatPath(c.u32(0), path); err != files.OK {
		return int64(err)
	}
	return wasiInval
}

// wasiReadFolder implements fd_readdir(fd, buf, size, cookie, used): entries from a number on. The
// last one is cut if it does not fit.
func wasiReadFolder(_ context.Context, c *hostCall) int64 {
	const header = 24
	size, number := uint64(c.u32(2)), c.stack[3]
	var entries []byte
	for uint64(len(entries)) < size {
		e, done, err := c.scope.fds.files.Entry(c.u32(0), number)
		if err != files.OK {
			return int64(err)
		}
		if done {
			break
		}
		c.charge(fileFuel + copyFuel(header+len(e.Name)))
		number++
		var entry [header]byte
		binary.LittleEndian.PutUint64(entry[:], number)
		binary.LittleEndian.PutUint64(entry[8:], e.Inode)
		binary.LittleEndian.PutUint32(entry[16:], uint32(len(e.Name))) //nolint:gosec // bounded
		entry[20] = typeOf(e.Info)
		entries = append(append(entries, entry[:]...), e.Name...)
	}
	entries = entries[:min(uint64(len(entries)), size)]
	return written(c.memory.Write(c.u32(1), entries) && c.memory.WriteUint32Le(c.u32(4), uint32(len(entries)))) //nolint:gosec // at most size
}
