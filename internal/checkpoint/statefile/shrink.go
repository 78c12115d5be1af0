package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

const (
	// shrinkFrom is the number of free bytes from which a file is worth rewriting.
	shrinkFrom = 64 << 20
	// shrinkBatch is the number of bytes that are copied in one transaction, which is held in
	// memory.
	shrinkBatch = 4 << 20

	shrunkMark = ".compact"
)

// worthShrinking reports whether more than half of the file is free: a file grows with its largest
// state, and bbolt reuses free pages, but does not return them.
func (found verdict) worthShrinking() bool {
	return found.free > shrinkFrom && found.free > found.size/2 && !found.fellBack
}

// shrink rewrites a mostly free file. The copy is complete, synced and verified before it gets the
// name, so that a crash leaves one file or the other; the next Open removes an incomplete copy. A
// failure, as a full disk, does not prevent the start: the present file is intact.
func (f *File) shrink(found verdict) {
	copied := f.cfg.Path + shrunkMark
	if err := os.Remove(copied); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.cfg.Log.Warn("the temporary file of an interrupted start cannot be removed", "file", copied, "err", fileerr.Cause(err))
		return
	}
	if !found.worthShrinking() {
		return
	}
	after, err := f.rewrite(copied)
	if err != nil {
		_ = os.Remove(copied) // another error is returned
		f.cfg.Log.Warn("the state file is mostly free space, and could not be rewritten without it: the file is used as it is",
			"file", f.cfg.Path, "bytes", found.size, "free", found.free, "err", full(err))
		return
	}
	f.cfg.Log.Info("the state file was mostly free space, and was rewritten without it", "file", f.cfg.Path, "bytes", found.size, "now", after)
}

// rewrite replaces the file by a copy of its values, using the path of the copy, and returns the
// new size.
func (f *File) rewrite(copied string) (size int64, err error) {
	if err := Guard(func() error { return f.copyTo(copied) }); err != nil {
		return 0, err
	}
	if err := syncFile(copied); err != nil {
		return 0, err
	}
	found, err := verify(copied, f.codec)
	if err != nil {
		return 0, fmt.Errorf("the copy: %w", err)
	}
	if err := os.Rename(copied, f.cfg.Path); err != nil {
		return 0, err
	}
	return found.size, folder.Sync(filepath.Dir(f.cfg.Path))
}

func (f *File) copyTo(path string) (err error) {
	options := f.options()
	options.ReadOnly = true
	from, err := bbolt.Open(f.cfg.Path, 0o600, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	options = f.options()
	options.MaxSize = 0 // the copy is smaller than the file
	options.NoSync, options.NoGrowSync = true, true
	to, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return bbolt.Compact(to, from, shrinkBatch)
}

// Replace replaces the file by another one in its folder, which the caller has verified. The lock
// of the folder is held meanwhile. A crash leaves one file or the other. After an error the file is
// the one of before, unless a later read or write fails too.
func (f *File) Replace(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	if err := syncFile(path); err != nil {
		return fileerr.Explain(err)
	}
	if err := Guard(f.bolt.Close); err != nil {
		return err
	}
	f.bolt = nil
	err := fileerr.Explain(os.Rename(path, f.cfg.Path))
	if err == nil {
		err = folder.Sync(filepath.Dir(f.cfg.Path))
	}
	return errors.Join(err, f.load())
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
