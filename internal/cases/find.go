package cases

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// errNoFiles reports that there are no files with cases.
var errNoFiles = errors.New("no files named *" + suffix + " are here: name files or folders, or dir/... for all below a folder")

// find returns the files selected by names of files and folders, sorted and without duplicates.
func find(names []string) (files []string, err error) {
	if len(names) == 0 {
		names = []string{"."}
	}
	for _, name := range names {
		folder, below := strings.CutSuffix(name, "...")
		if below {
			name = filepath.Clean(folder + ".")
		}
		info, err := os.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("there is no file or folder %s: name files of cases, or folders with them", name)
		case err != nil:
			return nil, fmt.Errorf("%s cannot be read: %w", name, fileerr.Cause(err))
		case !info.IsDir():
			files = append(files, name)
			continue
		}
		found, err := inFolder(name, below)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return nil, errNoFiles
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// inFolder returns the files with cases in a folder, with below also in its subfolders.
func inFolder(root string, below bool) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fileerr.Explain(err)
		case d.IsDir() && path != root && (!below || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(d.Name(), suffix):
			files = append(files, path)
		}
		return nil
	})
	return files, err
}
