package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Match returns the files that a pattern means, sorted: the file itself; of a folder, or of a
// pattern with wildcards in the last part of its path, the files of a configuration in it. No file
// is no error. The error names the pattern.
func Match(pattern string) ([]string, error) {
	dir, last := filepath.Split(pattern)
	switch {
	case hasWildcard(dir):
		return nil, fmt.Errorf("%s: only the last part of the path may have wildcards: name each folder", pattern)
	case !hasWildcard(last):
		info, err := os.Stat(pattern)
		switch {
		case err == nil && !info.IsDir() && !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s: it is no regular file", pattern)
		case err != nil || !info.IsDir():
			return existing(pattern, err)
		}
		dir, last = pattern, "*"
	}
	if _, err := filepath.Match(last, ""); err != nil {
		return nil, fmt.Errorf("%s: the pattern is malformed: close the [", pattern)
	}
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return existing("", err)
	}
	var names []string
	for _, e := range entries {
		if ok, _ := filepath.Match(last, e.Name()); !ok || !isConfiguration(e.Name()) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		// A link to nothing is a file that cannot be read. A pipe would block the reader.
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// existing returns a file, unless it does not exist.
func existing(name string, err error) ([]string, error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, explain(name, err)
	}
	return []string{name}, nil
}

func hasWildcard(path string) bool { return strings.ContainsAny(path, "*?[") }

// ReadIn is ReadFile for a regular file of a folder. It follows no link out of the folder, and does
// not wait for the writer of a pipe.
func ReadIn(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.New(reason(err))
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.New(reason(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	return io.ReadAll(io.LimitReader(f, MaxSize+1))
}

// ReadFile reads one file, up to one byte more than MaxSize. The error does not name it.
func ReadFile(name string) ([]byte, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, errors.New(reason(err))
	}
	return data, nil
}
