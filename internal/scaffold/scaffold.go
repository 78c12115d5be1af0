// Package scaffold writes the files that a user begins with: a configuration with its cases, and a
// handler that builds.
package scaffold

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

//go:embed all:templates
var templates embed.FS

// templateSuffix ends the names of the templates, so that tools do not read them as Go or YAML.
const templateSuffix = ".tmpl"

// file is a file to be written: its path and its content.
type file struct {
	path string
	text []byte
}

// placeholder is a value in a template, as {{.Name}}.
var placeholder = regexp.MustCompile(`\{\{\.(\w+)\}\}`)

// render fills in the placeholders of a template of templates/. text/template is not used: it finds
// methods by name at run time, so the linker would keep every exported method of the program.
func render(name string, values map[string]string) ([]byte, error) {
	text, err := templates.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	var missing error
	filled := placeholder.ReplaceAllStringFunc(string(text), func(found string) string {
		key := placeholder.FindStringSubmatch(found)[1]
		value, ok := values[key]
		if !ok {
			missing = fmt.Errorf("template %s: the value of %s is missing", name, found)
		}
		return value
	})
	return []byte(filled), missing
}

// write writes files that do not exist, and the folders that they are in. If one of them exists,
// nothing is written.
func write(files []file) error {
	for _, f := range files {
		if _, err := os.Lstat(f.path); err == nil {
			return fmt.Errorf("%s exists already: remove it, or name another", f.path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s cannot be written: %w", f.path, fileerr.Cause(err))
		}
	}
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
			return fmt.Errorf("folder %s cannot be created: %w", filepath.Dir(f.path), fileerr.Cause(err))
		}
		if err := create(f); err != nil {
			return fmt.Errorf("%s cannot be written: %w", f.path, fileerr.Cause(err))
		}
	}
	return nil
}

func create(f file) error {
	out, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = out.Write(f.text)
	return errors.Join(err, out.Close())
}
