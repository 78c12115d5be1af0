package statecmd

import (
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
)

// write makes the file of a backup, which must not exist. content writes a copy of a state file and
// returns the time of the last write to it. The file gets its name once it is complete, synced and
// verified.
func write(path string, content func(w io.Writer) (written time.Time, err error)) (*Report, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s exists already: name another file, or delete it", path)
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
