package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stamp is the time in the name of a file that was put aside: these sort by it.
const stamp = "20060102T150405.000000000Z"

// The ends of the names of files that were compressed.
const (
	gzipped = ".gz"
	zstded  = ".zst"
)

// aside is a file in the folder of a log that was put aside, or what became of it.
type aside struct {
	path string // without rest: as it was put aside
	rest string // empty, gzipped, zstded, or the end of the name of a half-written file
}

func (a *aside) file() string { return a.path + a.rest }

// isWhole reports whether it has the lines, compressed or not.
func (a *aside) isWhole() bool { return a.rest == "" || a.rest == gzipped || a.rest == zstded }

// nameAside returns the name under which a log is put aside.
func nameAside(path string, now time.Time) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + now.UTC().Format(stamp) + ext
}

// listAside returns what was put aside of a log, the oldest first. Other files are not listed,
// however they are called.
func listAside(path string) ([]aside, error) {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	ext := filepath.Ext(name)
	var all []aside
	for _, e := range entries {
		after, isOurs := strings.CutPrefix(e.Name(), strings.TrimSuffix(name, ext)+"-")
		if !isOurs || len(after) < len(stamp) || !e.Type().IsRegular() {
			continue
		}
		rest, ends := strings.CutPrefix(after[len(stamp):], ext)
		if _, err := time.Parse(stamp, after[:len(stamp)]); err != nil || !ends {
			continue
		}
		one := aside{filepath.Join(dir, strings.TrimSuffix(e.Name(), rest)), rest}
		if one.isWhole() || isHalf(rest) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b aside) int { return strings.Compare(a.file(), b.file()) })
	return all, nil
}

// prune removes all but the newest of the files that were put aside.
func prune(path string, keep int) error {
	all, err := listAside(path)
	if err != nil {
		return err
	}
	var paths []string
	for i := range all {
		if all[i].isWhole() {
			paths = append(paths, all[i].path)
		}
	}
	paths = slices.Compact(paths)
	for _, old := range paths[:max(0, len(paths)-keep)] {
		for _, rest := range []string{"", gzipped, zstded} {
			if err := os.Remove(old + rest); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// syncFolder makes a new name in the folder of a file survive the end of the machine.
func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
