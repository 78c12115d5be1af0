package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// savedFile is the name of the file that [Save] writes.
const savedFile = "schemas.json"

// maxSaved bounds its size in bytes; a cluster with hundreds of custom resources has a few MB.
const maxSaved = 256 << 20

// Save writes a set into a folder, which it makes if needed, and returns the path of the file. The
// file has the names and types of fields only, without descriptions, defaults or enumerations.
// Equal sets make equal files with a line per field, for comparison. Save replaces the file as a
// whole; after an error the old file is unchanged.
func Save(dir string, set *Set) (path string, err error) {
	path = filepath.Join(dir, savedFile)
	text, err := set.MarshalJSON()
	if err != nil {
		return path, err
	}
	var lines bytes.Buffer
	if err := json.Indent(&lines, text, "", " "); err != nil {
		return path, err
	}
	lines.WriteByte('\n')
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return path, fmt.Errorf("the folder %s cannot be created: %w", dir, fileerr.Cause(err))
	}
	f, err := os.CreateTemp(dir, "."+savedFile+"-*")
	if err != nil {
		return path, fmt.Errorf("no file can be created in the folder %s: %w", dir, fileerr.Cause(err))
	}
	_, err = f.Write(lines.Bytes())
	// Readable by all users of the folder, like other files in version control.
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // another error is returned
		return path, fmt.Errorf("%s cannot be written: %w", path, fileerr.Cause(err))
	}
	return path, nil
}

// Load reads the set that [Save] has written into a folder. The error names the file and the
// command that makes it.
func Load(dir string) (*Set, error) {
	path := filepath.Join(dir, savedFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s: router schema pull -o %s makes it", path, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, fileerr.Cause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSaved+1))
	if err == nil && len(text) > maxSaved {
		err = fmt.Errorf("it has more than %d bytes", maxSaved)
	}
	set := &Set{}
	if err == nil {
		err = set.UnmarshalJSON(text)
	}
	if err == nil && set.Len() == 0 {
		err = errors.New("there is no resource in it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; router schema pull -o %s replaces it", path, fileerr.Cause(err), dir)
	}
	return set, nil
}
