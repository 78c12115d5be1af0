package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Config has the location and the limits of the file.
type Config struct {
	// Path of the file. Its folder is made with mode 0700 if it does not exist.
	Path    string
	MaxSize int64        // in bytes; 0: no limit
	Log     *slog.Logger // must not be nil
	// Conversions lists the formats that are read only after a change of the content, ascending.
	// The last is at most OldestReader, which keeps older versions from reading the result.
	Conversions []Conversion
	// Opened is called after each opening of the file, before any other read.
	Opened func(tx *bbolt.Tx, codec *Codec) error
}

// File is the state file. It is safe for concurrent use: writes come one after the other, reads
// wait for them.
type File struct {
	cfg         Config
	codec       *Codec // nil: closed
	lock        *folder.Lock
	quarantined string
	found       verdict // when it was opened

	backup sync.Mutex // held while there is a Backup

	mu      sync.RWMutex
	bolt    *bbolt.DB
	info    os.FileInfo // of the file that bolt has open
	suspect bool        // after a failed write that requires reopening bbolt
	broken  error       // permanent, until the next start
}

// Open opens a file, or makes it if it does not exist. It reads the whole file once. The error is a
// *folder.LockedError, a *NewerError, a *ConversionError or one of the file system; a damaged file
// is no error, see [File.Quarantined]. A mostly free file is rewritten, see shrink; one of an older
// format may be converted, see convert.
func Open(cfg Config) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fileerr.Explain(err)
	}
	if err := folder.Check(filepath.Dir(cfg.Path)); err != nil {
		return nil, err
	}
	codec, err := NewCodec()
	if err != nil {
		return nil, err
	}
	f := &File{cfg: cfg, codec: codec}
	if f.lock, err = folder.Acquire(cfg.Path + ".lock"); err != nil {
		codec.Close()
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) open() error {
	err := f.load()
	if errors.Is(err, ErrCorrupt) {
		if err := f.quarantine(err); err != nil {
			return err
		}
		err = f.load()
	}
	return err
}

// load opens the file after verifying it, or a new one.
func (f *File) load() error {
	found, err := verify(f.cfg.Path, f.codec)
	if errors.Is(err, fs.ErrNotExist) {
		if err := f.create(); err != nil {
			return fmt.Errorf("the state file cannot be created: %w", fileerr.Explain(err))
		}
		found.Format = Format
	} else if err != nil {
		return named(f.cfg.Path, err)
	}
	f.report(found)
	if err := os.Chmod(f.cfg.Path, 0o600); err != nil {
		return fmt.Errorf("the mode of %s cannot be changed: %w", f.cfg.Path, fileerr.Cause(err))
	}
	f.shrink(found)
	if err := os.Remove(f.cfg.Path + backupMark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.cfg.Log.Warn("the temporary file of an interrupted backup cannot be removed", "file", f.cfg.Path+backupMark, "err", fileerr.Cause(err))
	}
	converted, err := f.convert(found)
	if err != nil {
		return err
	}
	if err := f.openBolt(); err != nil {
		return fmt.Errorf("%s: %w", f.cfg.Path, fileerr.Cause(err))
	}
	if found.Format != Format && !converted {
		if err := f.stamp(f.bolt); err != nil {
			return fmt.Errorf("%s: %w", f.cfg.Path, fileerr.Cause(err))
		}
	}
	f.found = found
	return nil
}

// report logs the losses in a file that is otherwise intact.
func (f *File) report(found verdict) {
	if found.fellBack {
		f.cfg.Log.Warn("the last transaction of the state file is unreadable; the state before it is used", "file", f.cfg.Path)
	}
}

func (f *File) options() *bbolt.Options {
	return &bbolt.Options{
		Timeout: folder.Wait, MaxSize: int(f.cfg.MaxSize), PageSize: 4096,
		FreelistType: bbolt.FreelistMapType, NoStatistics: true,
	}
}

func (f *File) openBolt() error { return f.openBoltWith(f.options()) }

func (f *File) openBoltWith(options *bbolt.Options) error {
	return Guard(func() error {
		bolt, err := bbolt.Open(f.cfg.Path, 0o600, options)
		switch {
		case errors.Is(err, berrors.ErrTimeout): // a process that does not use our lock file
			return &folder.LockedError{Path: f.cfg.Path}
		case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		case err != nil:
			return err
		}
		f.bolt = bolt
		if f.info, err = os.Stat(f.cfg.Path); err != nil {
			return err
		}
		return bolt.View(func(tx *bbolt.Tx) error { return f.cfg.Opened(tx, f.codec) })
	})
}

// create makes a file that is complete before it gets its name, so that an empty or partial file is
// recognised as damaged later.
func (f *File) create() error {
	made := f.cfg.Path + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	options := f.options()
	options.MaxSize = 0 // the first pages are always granted
	bolt, err := bbolt.Open(made, 0o600, options)
	if err != nil {
		return err
	}
	if err := errors.Join(f.stamp(bolt), bolt.Close()); err != nil {
		return err
	}
	if err := os.Rename(made, f.cfg.Path); err != nil {
		return err
	}
	return folder.Sync(filepath.Dir(f.cfg.Path))
}

// stamp writes the format number, and a seal if there is none.
func (f *File) stamp(bolt *bbolt.DB) error {
	return full(bolt.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists([]byte(MetaBucket))
		if err != nil {
			return err
		}
		if meta.Get([]byte(SealKey)) == nil {
			var empty Seal
			stored := f.codec.Append(nil, f.codec.Seed(0, MetaBucket), []byte(SealKey), empty.Payload())
			if err := meta.Put([]byte(SealKey), stored); err != nil {
				return err
			}
		}
		return SetFormat(meta, Format)
	}))
}

// Size returns the size of the file in bytes. A part of it may be free for new values: the file
// shrinks at [Open] only.
func (f *File) Size() int64 {
	info, err := os.Stat(f.cfg.Path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// usable makes sure that there is an open file. After a failed write it reopens the file: bbolt may
// have lost its memory map.
func (f *File) usable() error {
	if f.codec == nil {
		return ErrClosed
	}
	if f.broken != nil {
		return f.broken
	}
	if f.suspect || f.bolt == nil {
		if f.bolt != nil {
			if err := Guard(f.bolt.Close); err != nil {
				return err
			}
			f.bolt = nil
		}
		found, err := verify(f.cfg.Path, f.codec)
		if err != nil {
			return fileerr.Explain(err)
		}
		f.report(found)
		if err := f.openBolt(); err != nil {
			return fileerr.Explain(err)
		}
		f.suspect = false
	}
	return inPlace(f.cfg.Path, f.info)
}

// inPlace checks that a write will reach the file at the path: another process may have removed or
// replaced it.
func inPlace(path string, info os.FileInfo) error {
	there, err := os.Stat(path)
	if err == nil && os.SameFile(there, info) {
		return nil
	}
	return fmt.Errorf("%s was removed or replaced while it was in use: put it back, or restart to begin a new one", path)
}

// SetFormat writes the number of a format into the bucket meta.
func SetFormat(meta *bbolt.Bucket, format int) error {
	return meta.Put([]byte(FormatKey), formatValue(format, OldestReader))
}

// View runs f in a read transaction.
func (f *File) View(read func(tx *bbolt.Tx, codec *Codec) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.bolt == nil {
		return ErrClosed
	}
	if f.broken != nil {
		return f.broken
	}
	return full(Guard(func() error {
		return f.bolt.View(func(tx *bbolt.Tx) error { return read(tx, f.codec) })
	}))
}

// Update runs f in one write transaction. done is called once the transaction is on disk, before
// the next read or write.
func (f *File) Update(write func(tx *bbolt.Tx, codec *Codec) error, done func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	err := Guard(func() error {
		return f.bolt.Update(func(tx *bbolt.Tx) error { return write(tx, f.codec) })
	})
	var panicked *panicError
	switch {
	case err == nil:
		done()
	case errors.As(err, &panicked):
		f.broken = err
	case !errors.Is(err, berrors.ErrMaxSizeReached):
		f.suspect = true
	}
	return full(err)
}

// Quarantined returns the new name of a damaged file that Open moved away; empty: the file was
// intact.
func (f *File) Quarantined() string { return f.quarantined }

// Format returns the format that the file had when it was opened.
func (f *File) Format() int { return f.found.Format }

// Close waits for a running write and releases the file. It may be called twice.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.codec == nil {
		return nil
	}
	var err error
	if f.bolt != nil && f.broken == nil { // after a panic an internal lock may be held for ever
		err = Guard(f.bolt.Close)
	}
	f.bolt = nil
	f.codec.Close()
	f.codec = nil
	return errors.Join(err, f.lock.Release())
}
