// Package lockfile reads and writes plugins.lock, the file beside a configuration with the digests
// of the modules that the configuration names by their tags.
package lockfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Name is the name of the file.
const Name = "plugins.lock"

// maxSize bounds the file.
const maxSize = 1 << 20

// File is the content of the file. The zero value has no entry.
type File struct {
	Modules []Entry `yaml:"modules,required"`
}

// Entry is the digest of a tag.
type Entry struct {
	Ref      string `yaml:"ref,required"`
	Digest   string `yaml:"digest,required"`
	Verified string `yaml:"verified"` // by whom, for a reader of the file and for the log
}

// Validate implements [config.Validator].
func (e *Entry) Validate(n config.Node) config.Problems {
	if r, err := oci.Parse(e.Ref); err != nil || r.Tag == "" || r.Digest != "" {
		return config.Problems{n.At("ref").Problemf("must have a tag and no digest, as oci://registry.example.com/team/dns:1.2")}
	}
	if _, err := oci.Parse("oci://registry/name@" + e.Digest); err != nil {
		return config.Problems{n.At("digest").Problemf("must be sha256: and 64 hexadecimal digits")}
	}
	return nil
}

// Read returns the content of a file. A file that does not exist has no entry.
func Read(path string) (File, error) {
	var f File
	text, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("%s cannot be read: %w", path, fileerr.Cause(err))
	}
	root, problems := config.ParseNode(path, text)
	problems = append(problems, root.Decode(&f)...)
	return f, problems.Err()
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(text) > maxSize {
		return nil, errors.New("it is larger than 1Mi")
	}
	return text, err
}

// Beside returns the path of the lock file of a configuration, a file or a folder.
func Beside(config string) string {
	if info, err := os.Stat(config); err == nil && !info.IsDir() {
		config = filepath.Dir(config)
	}
	return filepath.Join(config, Name)
}

// Find returns the entry of a tag; nil: there is none.
func (f File) Find(r oci.Ref) *Entry {
	text := r.WithDigest("").String()
	for i := range f.Modules {
		if f.Modules[i].Ref == text {
			return &f.Modules[i]
		}
	}
	return nil
}

// header is the beginning of a written file.
const header = "# The digests of modules by their tags. router plugin verify -lock and keyless write this file.\n"

// Lock writes the digest of a tag to a file, whose other entries stay. verified says by whom the
// module was verified.
func Lock(path string, r oci.Ref, digest, verified string) error {
	r.Digest = ""
	if r.Tag == "" {
		return fmt.Errorf("%s has no tag: an entry of %s is for a tag", r, Name)
	}
	f, err := Read(path)
	if err != nil {
		return err
	}
	f.Modules = slices.DeleteFunc(f.Modules, func(e Entry) bool { return e.Ref == r.String() })
	f.Modules = append(f.Modules, Entry{r.String(), digest, verified})
	slices.SortFunc(f.Modules, func(a, b Entry) int { return cmp.Compare(a.Ref, b.Ref) })
	if err := replace(path, f.text()); err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, fileerr.Cause(err))
	}
	return nil
}

// text returns the file as YAML, whose quoted strings have the escapes of Go's.
func (f File) text() []byte {
	var b bytes.Buffer
	b.WriteString(header + "modules:\n")
	for _, e := range f.Modules {
		fmt.Fprintf(&b, "  - ref: %q\n    digest: %q\n", e.Ref, e.Digest)
		if e.Verified != "" {
			fmt.Fprintf(&b, "    verified: %q\n", e.Verified)
		}
	}
	return b.Bytes()
}

// replace writes a file in one step, so that a router never reads a part of it.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+Name+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644) //nolint:gosec // digests are no secrets, and the router may be another user
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
