package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Conversion changes the content of a file from the format before To to the format To. It keeps the
// seal correct. It must not depend on the configuration.
type Conversion struct {
	To  int
	Run func(tx *bbolt.Tx, codec *Codec) error
}

const (
	// formatMark and the number of a format follow the path of the state file in the name of the
	// copy that is made before a conversion from that format.
	formatMark = ".format-"
	// spareRoom is left on the disk after a copy.
	spareRoom = 16 << 20
)

// ConversionError says that the state file could not be converted to the format of this version.
// The file is left unchanged. The error wraps no other, so that no cause is taken for damage of the
// file.
type ConversionError struct {
	Path     string
	From, To int
	Reason   error
}

// Error names the formats, the reason and the remedy.
func (e *ConversionError) Error() string {
	return fmt.Sprintf("%s has format %d and could not be converted to format %d: %v; it is unchanged: remove the reason and start again, or run the version that wrote it",
		e.Path, e.From, e.To, e.Reason)
}

// convert runs the conversions that the file needs, after a copy of it was made. All of them are
// one transaction: after a crash the file has its old format or the new one.
func (f *File) convert(found verdict) (converted bool, err error) {
	var steps []Conversion
	for _, c := range f.cfg.Conversions {
		if c.To > found.Format {
			steps = append(steps, c)
		}
	}
	if len(steps) == 0 {
		return false, nil
	}
	kept := fmt.Sprint(f.cfg.Path, formatMark, found.Format)
	err = f.copyFile(kept)
	if err == nil {
		err = Guard(func() error { return f.runAll(steps) })
	}
	if err != nil {
		return false, &ConversionError{Path: f.cfg.Path, From: found.Format, To: Format, Reason: full(err)}
	}
	f.cfg.Log.Info("the state file was converted; the copy of the file before is for going back to an earlier version, and may be deleted",
		"file", f.cfg.Path, "from", found.Format, "to", Format, "copy", kept)
	return true, nil
}

func (f *File) runAll(steps []Conversion) (err error) {
	bolt, err := bbolt.Open(f.cfg.Path, 0o600, f.options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bolt.Close()) }()
	return bolt.Update(func(tx *bbolt.Tx) error {
		for _, c := range steps {
			if err := c.Run(tx, f.codec); err != nil {
				return fmt.Errorf("the conversion to format %d: %w", c.To, err)
			}
		}
		return SetFormat(tx.Bucket([]byte(MetaBucket)), Format)
	})
}

// copyFile makes a verified copy of the state file, which is not in use. The copy is complete and
// synced before it gets its name, and replaces an older one.
func (f *File) copyFile(path string) error {
	if err := roomFor(path, f.Size()); err != nil {
		return fmt.Errorf("the copy that is made before: %w", err)
	}
	made := path + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("an earlier copy: %w", fileerr.Explain(err))
	}
	err := writeCopy(f.cfg.Path, made)
	if err == nil {
		_, err = verify(made, f.codec)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		_ = os.Remove(made) // another error is returned
		return fmt.Errorf("the copy that is made before: %w", fileerr.Explain(err))
	}
	return fileerr.Explain(folder.Sync(filepath.Dir(path)))
}

func writeCopy(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// olderCopy returns the copy of the state file of the highest format that this version reads;
// empty: there is none.
func olderCopy(path string) string {
	for format := Format; format > 0; format-- {
		kept := fmt.Sprint(path, formatMark, format)
		if info, err := os.Lstat(kept); err == nil && info.Mode().IsRegular() {
			return kept
		}
	}
	return ""
}
