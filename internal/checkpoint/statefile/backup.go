package statefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// ErrBackupRuns is returned if another backup is being made or read.
var ErrBackupRuns = errors.New("another backup is being made: wait for its end")

// backupMark follows the path of the state file in the name of the temporary file of a backup.
const backupMark = ".backup"

// CopyTo writes a copy of the file as of its last transaction. Writes go on meanwhile, but the file
// cannot grow beyond its memory map, and Close waits: so w must not be slow. It ends early when ctx
// is done.
func (f *File) CopyTo(ctx context.Context, w io.Writer) error {
	tx, err := f.begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it was only read
	return full(Guard(func() error {
		_, err := tx.WriteTo(&interrupted{ctx, w})
		return err
	}))
}

// begin starts a read transaction that the caller ends. Unlike View it does not hold f.mu.
func (f *File) begin() (tx *bbolt.Tx, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.bolt == nil:
		return nil, ErrClosed
	case f.broken != nil:
		return nil, f.broken
	}
	err = Guard(func() (err error) {
		tx, err = f.bolt.Begin(false)
		return err
	})
	return tx, full(err)
}

// interrupted is a writer that fails when a context is done.
type interrupted struct {
	ctx context.Context
	w   io.Writer
}

func (i *interrupted) Write(p []byte) (int, error) {
	if err := context.Cause(i.ctx); err != nil {
		return 0, err
	}
	return i.w.Write(p)
}

// Backup is a copy of the state file for a reader that may be slow. Close removes it.
type Backup struct {
	*os.File

	Size    int64
	Written time.Time // the last write to the state file
	end     func() error
}

// Close removes the copy.
func (b *Backup) Close() error { return errors.Join(b.File.Close(), b.end()) }

// Backup makes a copy beside the file. There is one at a time, see [ErrBackupRuns].
func (f *File) Backup(ctx context.Context) (*Backup, error) {
	if !f.backup.TryLock() {
		return nil, ErrBackupRuns
	}
	path := f.cfg.Path + backupMark
	end := func() error {
		err := os.Remove(path)
		f.backup.Unlock()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fileerr.Explain(err)
	}
	b, err := f.makeBackup(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("the backup: %w", fileerr.Explain(errors.Join(err, end())))
	}
	b.end = end
	return b, nil
}

func (f *File) makeBackup(ctx context.Context, path string) (b *Backup, err error) {
	if err := roomFor(path, f.Size()); err != nil {
		return nil, err
	}
	// the router was killed during a backup
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	info, err := os.Stat(f.cfg.Path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	b = &Backup{File: file, Written: info.ModTime()}
	err = f.CopyTo(ctx, file)
	if err == nil {
		b.Size, err = file.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return b, nil
}

// roomFor returns an error if the disk has no room for a copy of a size.
func roomFor(path string, size int64) error {
	dir, need := filepath.Dir(path), size+spareRoom
	if room, known := folder.Room(dir); known && room < need {
		return fmt.Errorf("%w: it needs %d bytes in %s, and %d are free", ErrFull, need, dir, room)
	}
	return nil
}
