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

// stamp is the time format in the name of a rotated file. The names sort by time.
const stamp = "20060102T150405.000000000Z"

// The suffixes of compressed files.
const (
	gzipped = ".gz"
	zstded  = ".zst"
)

// aside is a rotated file of a log, compressed or not, or a temporary file of its compression.
type aside struct {
	path string // the path before its compression, without rest
	rest string // empty, gzipped, zstded, or the suffix of a temporary file
}

func (a *aside) file() string { return a.path + a.rest }

// isWhole reports whether the file contains all lines, compressed or not.
func (a *aside) isWhole() bool { return a.rest == "" || a.rest == gzipped || a.rest == zstded }

// nameAside returns the name of a rotated file.
func nameAside(path string, now time.Time) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + now.UTC().Format(stamp) + ext
}

// listAside returns the rotated files of a log, the oldest first. It does not return files with
// other names.
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

// prune removes the oldest rotated files and keeps the given number.
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

// syncFolder syncs the folder of a file, so that a new name survives a crash of the machine.
func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
