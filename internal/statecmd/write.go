package statecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/history"
)

// write makes the file of a backup, which must not exist. content writes a copy of a state file and
// returns the time of the last write to it. The file gets its name once it is complete, synced and
// verified.
func write(path string, content func(w io.Writer) (written time.Time, err error)) (*Report, error) {
	if err := unused(path); err != nil {
		return nil, err
	}
	made := path + ".new"
	file, err := os.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s is the rest of an interrupted backup: delete it", made)
	}
	if err != nil {
		return nil, fileerr.Explain(err)
	}
	report, err := finish(file, content)
	if err == nil {
		report.File = path
		err = fileerr.Explain(os.Rename(made, path))
	}
	if err != nil {
		_ = os.Remove(made) // another error is returned
		return nil, err
	}
	return report, fileerr.Explain(folder.Sync(filepath.Dir(path)))
}

// unused refuses a path that exists.
func unused(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists already: name another one, or delete it", path)
	}
	return nil
}

// finish writes, syncs, closes and verifies the file.
func finish(file *os.File, content func(w io.Writer) (time.Time, error)) (*Report, error) {
	written, err := content(file)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fileerr.Explain(err)
	}
	// The time of the file tells how old the state is.
	if err := os.Chtimes(file.Name(), written, written); err != nil {
		return nil, fileerr.Explain(err)
	}
	db, err := checkpoint.OpenReadOnly(file.Name())
	if err != nil {
		return nil, fmt.Errorf("the backup cannot be read: %w", err)
	}
	report, err := inspect(db, file.Name())
	return report, errors.Join(err, db.Close())
}

// copyHistory copies the segments of a history into a folder, which must not exist. The folder gets
// its name once all of them are complete and synced. A damaged segment is copied as it is.
func copyHistory(ctx context.Context, from, to string) (segments int, size int64, err error) {
	if err := unused(to); err != nil {
		return 0, 0, err
	}
	reader, err := history.OpenFolder(from)
	if err != nil {
		return 0, 0, err
	}
	made := to + ".new"
	err = os.Mkdir(made, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return 0, 0, fmt.Errorf("%s is the rest of an interrupted backup: delete it", made)
	}
	if err != nil {
		return 0, 0, fileerr.Explain(err)
	}
	all := reader.Segments()
	if size, err = copySegments(ctx, all, made); err == nil {
		err = os.Rename(made, to)
	}
	if err != nil {
		_ = os.RemoveAll(made) // another error is returned
		return 0, 0, fileerr.Explain(err)
	}
	return len(all), size, fileerr.Explain(folder.Sync(filepath.Dir(to)))
}

func copySegments(ctx context.Context, all [][]string, to string) (size int64, err error) {
	for _, files := range all {
		for _, file := range files {
			if ctx.Err() != nil {
				return size, ctx.Err()
			}
			n, err := copyFile(file, filepath.Join(to, filepath.Base(file)))
			if size += n; err != nil {
				return size, err
			}
		}
	}
	return size, folder.Sync(to)
}

// copyFile copies a file to one that does not exist, and syncs that.
func copyFile(from, to string) (size int64, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return size, errors.Join(err, out.Close())
}
