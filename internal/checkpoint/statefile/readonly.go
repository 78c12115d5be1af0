package statefile

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Facts describes a file that was opened to be read.
type Facts struct {
	Format       int
	OldestReader int   // the oldest format whose versions read the file
	Size, Free   int64 // in bytes; Free is a part of Size
	Modified     time.Time
	// FellBack: the newest of the two meta pages is damaged, and the file has the state of the
	// transaction before the last one.
	FellBack bool
}

// OpenReadOnly opens an existing file to be read, and does not change it: a damaged file is an
// error that wraps ErrCorrupt, and one that needs a conversion is an error too. A router that
// runs, or starts meanwhile, gets or has a *folder.LockedError.
func OpenReadOnly(cfg Config) (*File, error) {
	codec, err := NewCodec()
	if err != nil {
		return nil, err
	}
	f := &File{cfg: cfg, codec: codec}
	if err := f.openReadOnly(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) openReadOnly() (err error) {
	if f.lock, err = folder.AcquireExisting(f.cfg.Path + ".lock"); err != nil {
		return err
	}
	if f.found, err = verify(f.cfg.Path, f.codec); err != nil {
		return named(f.cfg.Path, err)
	}
	for _, c := range f.cfg.Conversions {
		if c.To > f.found.Format {
			return fmt.Errorf("%s has format %d, which the router converts to format %d when it starts: start the router with it first, or use the version that wrote it",
				f.cfg.Path, f.found.Format, Format)
		}
	}
	options := f.options()
	options.ReadOnly, options.MaxSize = true, 0
	return fileerr.Explain(f.openBoltWith(options))
}

// Facts describes a file of OpenReadOnly.
func (f *File) Facts() (Facts, error) {
	info, err := os.Stat(f.cfg.Path)
	if err != nil {
		return Facts{}, fileerr.Explain(err)
	}
	return Facts{
		Format: f.found.Format, OldestReader: f.found.reader, Size: f.found.size, Free: f.found.free, Modified: info.ModTime(), FellBack: f.found.fellBack,
	}, nil
}
