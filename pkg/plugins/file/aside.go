package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// stamp is the time format in the name of a rotated file. The names sort by time.
const stamp = "20060102T150405.000000000Z"

// nameAside returns the name of a rotated file.
func nameAside(path string, now time.Time) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + now.UTC().Format(stamp) + ext
}

// prune removes the oldest rotated files and keeps the given number. Files with other names stay,
// compressed ones too: they belong to the program that compressed them.
func prune(path string, keep int) error {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir)) // in the order of the names
	if err != nil {
		return err
	}
	ext := filepath.Ext(name)
	var rotated []string
	for _, e := range entries {
		rest, begins := strings.CutPrefix(e.Name(), strings.TrimSuffix(name, ext)+"-")
		at, ends := strings.CutSuffix(rest, ext)
		if _, err := time.Parse(stamp, at); err == nil && begins && ends && e.Type().IsRegular() {
			rotated = append(rotated, filepath.Join(dir, e.Name()))
		}
	}
	for _, oldest := range rotated[:max(0, len(rotated)-keep)] {
		if err := os.Remove(oldest); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
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
