// Package files reads the text of a configuration: a file, the files of a folder, or standard
// input.
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
	"sync"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Stdin is the path of standard input.
const Stdin = "-"

// MaxSize is the bound of a configuration, in bytes: a ConfigMap holds no more.
const MaxSize = 1 << 20

// File is a file of a configuration.
type File struct {
	Name string // for messages
	Data []byte // at most one byte more than MaxSize
}

// stdin reads standard input once: a configuration is loaded several times.
var stdin = sync.OnceValues(func() ([]byte, error) { return io.ReadAll(io.LimitReader(os.Stdin, MaxSize+1)) })

// Name returns the name of a path in messages.
func Name(path string) string {
	if path == Stdin {
		return "stdin"
	}
	return path
}

// Read reads the files of a configuration, sorted by name. The error names the path.
func Read(path string) ([]File, error) {
	if path == Stdin {
		data, err := stdin()
		return []File{{Name(path), data}}, err
	}
	names, err := list(path)
	if err != nil {
		return nil, err
	}
	var all []File
	for _, name := range names {
		data, err := readFile(name)
		if err != nil {
			return nil, explain(name, err)
		}
		all = append(all, File{name, data})
	}
	return all, nil
}

// Stat returns the state of each file of a configuration, by name.
func Stat(path string) (map[string]fs.FileInfo, error) {
	state := map[string]fs.FileInfo{}
	if path == Stdin {
		return state, nil
	}
	names, err := list(path)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if state[name], err = os.Stat(name); err != nil {
			return nil, explain(name, err)
		}
	}
	return state, nil
}

// list returns the path, or the files of the folder that it is.
func list(path string) (names []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, explain(path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, explain(path, err)
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if !isConfiguration(e.Name()) {
			continue
		}
		// A mounted ConfigMap has links, also to folders.
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: the folder has no file named *.yaml or *.yml: add a configuration", path)
	}
	slices.Sort(names)
	return names, nil
}

// isConfiguration reports whether a file of a folder belongs to the configuration. Files of test
// cases and hidden files do not.
func isConfiguration(name string) bool {
	ext := filepath.Ext(name)
	base := strings.TrimSuffix(name, ext)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasSuffix(base, "_test") && !strings.HasPrefix(name, ".")
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxSize+1))
}

// explain words an error of the file system.
func explain(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: there is no such file or folder: give another path, or write a configuration with router init", path)
	}
	return fmt.Errorf("%s: %s", path, reason(err))
}

// reason words an error of the file system without the path.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not read it: change its permissions"
	}
	return fmt.Sprintf("it cannot be read: %v", fileerr.Cause(err))
}
