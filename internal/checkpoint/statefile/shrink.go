package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
)

const (
	// shrinkFrom is how much of the file must hold nothing before it is worth rewriting it.
	shrinkFrom = 64 << 20
	// shrinkBatch is how much is copied in one transaction, which is held in memory.
	shrinkBatch = 4 << 20

	shrunkMark = ".compact"
)

// worthShrinking: a file grows with the largest state that it ever held, and what is free of it is
// used again, but not given back.
func (found verdict) worthShrinking() bool {
	return found.free > shrinkFrom && found.free > found.size/2 && !found.fellBack
}

// shrink rewrites a file of which most is free. The copy is complete, synced and verified before it
// takes the name, so that a crash leaves one file or the other; what it left half made is removed
// by the next Open. Nothing that goes wrong, as a full disk, is a reason not to start: the file
// that is there is in order.
func (f *File) shrink(found verdict) {
	copied := f.cfg.Path + shrunkMark
	if err := os.Remove(copied); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.cfg.Log.Warn("what an interrupted start left cannot be removed", "file", copied, "err", err)
		return
	}
	if !found.worthShrinking() {
		return
	}
	after, err := f.rewrite(copied)
	if err != nil {
		_ = os.Remove(copied) // the error that counts is there already
		f.cfg.Log.Warn("most of the state file is free, and it could not be rewritten without that: it is used as it is",
			"file", f.cfg.Path, "bytes", found.size, "free", found.free, "err", full(err))
		return
	}
	f.cfg.Log.Info("most of the state file was free: it was rewritten without that", "file", f.cfg.Path, "bytes", found.size, "now", after)
}

// rewrite puts a copy of what the file holds in its place, by the path of the copy, and returns the
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
	options.MaxSize = 0 // it is smaller than what is there
	options.NoSync, options.NoGrowSync = true, true
	to, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return bbolt.Compact(to, from, shrinkBatch)
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
