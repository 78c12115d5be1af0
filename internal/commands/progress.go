package commands

import (
	"io"
	"os"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// startProgress shows the progress of a command on standard error, if that is a terminal. The
// command writes to the returned streams instead of its own, and calls Stop.
func startProgress(s cli.Streams, what string) (cli.Streams, *cli.Progress) {
	out := s.Err
	if e, ok := out.(*printable.Escaper); ok {
		out = e.Unwrap()
	}
	p := cli.StartProgress(out, what)
	if p == nil {
		return s, nil
	}
	s.Err, s.Out, s.Raw = printable.Writer(p.Writer(out)), printable.Writer(p.Writer(s.Raw)), p.Writer(s.Raw)
	return s, p
}

// readProgress shows how much of a file is read.
type readProgress struct {
	io.Reader

	progress   *cli.Progress
	done, size int64
}

// leastSize is the size of a file, in bytes, from which on the part that is read tells how far its
// reader is. Readers of smaller ones have most of them in their buffers.
const leastSize = 4 << 20

func newReadProgress(file *os.File, p *cli.Progress) *readProgress {
	r := &readProgress{Reader: file, progress: p}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() >= leastSize {
		r.size = info.Size()
	}
	return r
}

// Read implements io.Reader.
func (r *readProgress) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.done += int64(n)
	r.progress.Done(r.done, r.size)
	return n, err
}
