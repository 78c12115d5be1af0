package router

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"

	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
)

// watchedFile notices a changed content of a configuration: of a file, including a changed symlink
// on its path, or of the files of a folder; of the files that it includes, and of the digests of
// modules beside it.
type watchedFile struct {
	path     string
	included []string               // patterns
	state    map[string]fs.FileInfo // of the last check, by name; nil: there was no file
	content  [sha256.Size]byte
	settled  bool // content is of state
}

func newWatchedFile(path string) *watchedFile {
	f := &watchedFile{path: path}
	f.remember()
	return f
}

// remember records the present content as known.
func (f *watchedFile) remember() {
	f.state, _ = f.stat()
	f.content, _ = f.digest()
	f.settled = true
}

// include replaces the patterns of included files. If they differ from those before, the next call
// of changed but one reports a change: a file may have changed since it was read.
func (f *watchedFile) include(patterns []string) {
	if fmt.Sprint(f.included) != fmt.Sprint(patterns) {
		f.included, f.settled = patterns, false
	}
}

// changed reports whether the content is new and equal to that of the last check, so that it is not
// being written now. A missing path and a folder without files have no content.
func (f *watchedFile) changed() bool {
	state, err := f.stat()
	if err != nil {
		f.state = nil
		return false
	}
	same := f.state != nil && maps.EqualFunc(f.state, state, func(a, b fs.FileInfo) bool {
		return a == nil && b == nil ||
			a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
	})
	f.state = state
	if !same { // it may be half written: the next check decides
		f.settled = false
		return false
	}
	if f.settled {
		return false
	}
	// Only a settled file is read, and an equal content under a new time is no change.
	sum, err := f.digest()
	if err != nil {
		return false
	}
	was := f.content
	f.content, f.settled = sum, true
	return sum != was
}

// same reports whether the content is that of the last read.
func (f *watchedFile) same() bool {
	sum, err := f.digest()
	return err == nil && sum == f.content
}

// stat returns the state of each file by name; nil for an included file that cannot be read.
func (f *watchedFile) stat() (map[string]fs.FileInfo, error) {
	state, err := files.Stat(f.path)
	if err != nil {
		return nil, err
	}
	for _, name := range f.matches() {
		state[name], _ = os.Stat(name)
	}
	return state, nil
}

// matches returns the included files and the lock file. A mistake in a pattern is reported when the
// configuration is read.
func (f *watchedFile) matches() (names []string) {
	for _, pattern := range append([]string{lockfile.Beside(f.path)}, f.included...) {
		more, _ := files.Match(pattern)
		names = append(names, more...)
	}
	return names
}

// digest identifies the names and the content of the files of a configuration.
func (f *watchedFile) digest() (sum [sha256.Size]byte, err error) {
	all, err := files.Read(f.path)
	if err != nil {
		return sum, err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q", all)
	for _, name := range f.matches() {
		data, err := files.ReadFile(name)
		fmt.Fprintf(hash, "%q%q%v", name, data, err)
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}
