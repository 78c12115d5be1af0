package built

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// sources say which program it is.
type sources struct {
	key  string // of all that has an influence on the program
	name string // of the program
}

// listed is what go list says about a package.
type listed struct {
	ImportPath, Dir, DefaultGODEBUG string
	Standard                        bool
	Module                          *listedModule

	GoFiles, SFiles, HFiles, EmbedFiles []string
}

type listedModule struct {
	Path, Version, GoMod string
	Replace              *listedModule
}

// sources reads all sources of the program, apart from those of the standard library and of modules
// with a version. They are opened in this process, because the go command keeps the result of a
// test until a file or folder changes that the test has opened.
func (p Program) sources() (s sources, err error) {
	var key bytes.Buffer
	fmt.Fprintf(&key, "%q %q\n", p.Flags, p.Env)
	env, err := p.run("env", "GOVERSION", "GOOS", "GOARCH", "GOEXPERIMENT", "GOFIPS140", "GOAMD64", "GOARM64", "GOWASM")
	if err != nil {
		return s, err
	}
	key.Write(env)
	out, err := p.run("list", "-deps", "-json=ImportPath,Dir,DefaultGODEBUG,Standard,Module,GoFiles,SFiles,HFiles,EmbedFiles")
	if err != nil {
		return s, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return s, fmt.Errorf("go list: %w", err)
		}
		s.name = nameOf(l.ImportPath) // of the last package, which is the program
		if l.Standard {
			continue
		}
		if err := l.addTo(&key); err != nil {
			return s, err
		}
	}
	s.key = sum(key.Bytes())
	return s, nil
}

// addTo adds the sources of the package to a key, or its version if it has one.
func (l *listed) addTo(key *bytes.Buffer) error {
	m := l.Module
	switch {
	case m == nil: // a program of some files
		m = &listedModule{}
	case m.Replace != nil:
		m = m.Replace
	}
	fmt.Fprintf(key, "package %s %q %s %s\n", l.ImportPath, l.DefaultGODEBUG, m.Path, m.Version)
	if m.Version != "" {
		return nil // its content does not change
	}
	if _, err := os.ReadDir(l.Dir); err != nil { // a new file changes the folder
		return err
	}
	var files []string
	if m.GoMod != "" {
		files = append(files, m.GoMod)
	}
	for _, name := range slices.Concat(l.GoFiles, l.SFiles, l.HFiles, l.EmbedFiles) {
		files = append(files, filepath.Join(l.Dir, name))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(key, "%s %s\n", filepath.Base(file), sum(text))
	}
	return nil
}

// nameOf returns the name that the go command gives to the program of a package.
func nameOf(importPath string) string {
	name := path.Base(importPath)
	if parent := path.Base(path.Dir(importPath)); version.MatchString(name) && parent != "." {
		return parent
	}
	return name
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// prune removes the entries of a folder that were unused for long, the oldest first, until the rest
// is small.
func prune(root string, now time.Time) {
	type entry struct {
		dir  string
		used time.Time
		size int64
	}
	var entries []entry
	dirs, _ := os.ReadDir(root)
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		e := entry{dir: filepath.Join(root, d.Name())}
		_ = filepath.WalkDir(e.dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if info, err := d.Info(); err == nil {
				e.size += info.Size()
				if info.ModTime().After(e.used) {
					e.used = info.ModTime()
				}
			}
			return nil
		})
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return b.used.Compare(a.used) })
	size := int64(0)
	for _, e := range entries {
		if size += e.size; size > keptBytes && now.Sub(e.used) > keptFor {
			_ = os.RemoveAll(e.dir)
		}
	}
}
