package file

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// The values of [sinkConfig].Compress.
const (
	compressNone = "none"
	compressGzip = "gzip"
	compressZstd = "zstd"
)

// half is the suffix of a file whose compression is not complete.
const half = ".tmp"

func isHalf(rest string) bool {
	return strings.HasSuffix(rest, half) && (strings.HasPrefix(rest, gzipped+".") || strings.HasPrefix(rest, zstded+"."))
}

// compressor compresses rotated files in the background. It gives the compressed file its name
// after all of it is on disk, and removes the original after that. If the router ends in between,
// the next run continues.
type compressor struct {
	cfg  sinkConfig
	log  *slog.Logger
	wake chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// newCompressor starts a compressor. It returns nil if compression is off.
func newCompressor(ctx context.Context, cfg sinkConfig, log *slog.Logger) *compressor {
	if cfg.Compress == compressNone {
		return nil
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &compressor{cfg: cfg, log: log, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go c.run(ctx)
	return c
}

// look makes the compressor search for uncompressed files soon.
func (c *compressor) look() {
	if c == nil {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close stops the compressor, even within a file. It may be called more than once.
func (c *compressor) close() {
	if c != nil {
		c.stop()
		<-c.done
	}
}

func (c *compressor) run(ctx context.Context) {
	defer close(c.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			if err := c.all(ctx); err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "a rotated file could not be compressed; the next rotation tries it again", slog.Any("err", fileerr.Explain(err)))
			}
		}
	}
}

// all compresses all uncompressed files, and removes the temporary files of an interrupted run.
func (c *compressor) all(ctx context.Context) error {
	found, err := listAside(c.cfg.Path)
	if err != nil {
		return err
	}
	var failed error
	for i := range found {
		switch one := &found[i]; {
		case ctx.Err() != nil:
			return ctx.Err()
		case isHalf(one.rest):
			failed = errors.Join(failed, remove(one.file()))
		case one.rest == "":
			failed = errors.Join(failed, c.one(ctx, one.path))
		}
	}
	return failed
}

// one compresses a file. If the compressed file exists already, it only removes the original.
func (c *compressor) one(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) { // rotation has removed it as the oldest
		return nil
	}
	if err != nil {
		return err
	}
	for _, end := range []string{gzipped, zstded} {
		if n, err := expanded(path + end); err == nil && n == info.Size() {
			return remove(path)
		}
	}
	end := gzipped
	if c.cfg.Compress == compressZstd {
		end = zstded
	}
	if err := c.write(ctx, path, path+end, info.Mode().Perm()); err != nil {
		return err
	}
	return remove(path)
}

// write writes the compressed copy of a file.
func (c *compressor) write(ctx context.Context, from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	// a unique name, because another router may compress the same file
	out, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*"+half)
	if err != nil {
		return err
	}
	err = errors.Join(c.copy(out, &interruptible{ctx, in}), out.Chmod(mode), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compress %s: %w", from, err), remove(out.Name()))
	}
	return syncFolder(to)
}

func (c *compressor) copy(to io.Writer, from io.Reader) error {
	var w io.WriteCloser = gzip.NewWriter(to)
	if c.cfg.Compress == compressZstd {
		var err error
		if w, err = zstd.NewWriter(to, zstd.WithEncoderConcurrency(1)); err != nil {
			return err
		}
	}
	_, err := io.Copy(w, from)
	return errors.Join(err, w.Close())
}

// expanded returns the uncompressed size of a compressed file. The error means that the file is
// incomplete or does not exist.
func expanded(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if strings.HasSuffix(path, zstded) {
		r, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return 0, err
		}
		defer r.Close()
		return io.Copy(io.Discard, r)
	}
	r, err := gzip.NewReader(f)
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, r)
}

// interruptible is a reader that fails when its context is done.
type interruptible struct {
	ctx  context.Context
	from io.Reader
}

// Read implements io.Reader.
func (r *interruptible) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(b)
}

// remove removes a file that may not exist.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
