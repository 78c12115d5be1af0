package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Mount is a part of a tree. Exactly one of File, Folder and Archive is set.
type Mount struct {
	File, Folder, Archive string // on the disk of the router
	SHA256                string // of the file or archive; empty: any content
	To                    string // an absolute path of the guest
}

// from returns the path on the disk of the router.
func (m *Mount) from() string { return m.File + m.Folder + m.Archive }

// Load copies files into a tree. The tree is nil if there are no mounts.
func Load(mounts []Mount) (*Tree, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	t := newTree()
	for i := range mounts {
		m := &mounts[i]
		if err := t.load(m); err != nil {
			return nil, fmt.Errorf("files: %s: %w", m.from(), err)
		}
	}
	return t, nil
}

func (t *Tree) load(m *Mount) error {
	if m.Folder != "" {
		return t.loadFolder(m)
	}
	info, err := os.Stat(m.from())
	if err != nil {
		return fileerr.Cause(err)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait
		return errors.New("it is not a file; a folder has the key `folder`")
	}
	data, err := t.read(func() (io.ReadCloser, error) { return os.Open(m.from()) })
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); m.SHA256 != "" && !strings.EqualFold(got, m.SHA256) {
		return fmt.Errorf("its content differs from sha256: its SHA-256 is %s", got)
	}
	if m.Archive != "" {
		return t.unpack(m.To, data)
	}
	return t.add(m.To, data)
}

// read reads a file within the limit of the tree.
func (t *Tree) read(open func() (io.ReadCloser, error)) ([]byte, error) {
	f, err := open()
	if err != nil {
		return nil, fileerr.Cause(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes-t.bytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("it cannot be read: %w", fileerr.Cause(err))
	case int64(len(data)) > MaxBytes-t.bytes:
		return nil, fmt.Errorf("the files of a handler have more than %d MiB", MaxBytes>>20)
	}
	return data, nil
}

// loadFolder copies a folder. A link within the folder is followed, one that leaves it is an error.
func (t *Tree) loadFolder(m *Mount) error {
	root, err := os.OpenRoot(m.Folder)
	if err != nil {
		return fileerr.Cause(err)
	}
	defer root.Close()
	if _, err := t.folder(m.To); err != nil {
		return err
	}
	return walk(root, ".", func(name string) error {
		data, err := t.read(func() (io.ReadCloser, error) { return root.Open(name) })
		if err == nil {
			err = t.add(path.Join(m.To, name), data)
		}
		return err
	})
}

// walk calls visit with each file of a folder, in lexical order. Kubernetes keeps earlier versions
// of a volume in names that begin with two dots; links to their files have the names for users.
func walk(root *os.Root, dir string, visit func(name string) error) error {
	if strings.Count(dir, "/") > maxDepth {
		return fmt.Errorf("%s: deeper than %d folders (a link to a folder around it?)", dir, maxDepth)
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, fileerr.Cause(err))
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		info, err := root.Stat(name)
		switch {
		case err != nil && entry.Type()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a link that leaves the folder, or leads nowhere", name)
		case err != nil:
			return fmt.Errorf("%s: %w", name, fileerr.Cause(err))
		case info.IsDir():
			err = walk(root, name, visit)
		case info.Mode().IsRegular():
			err = visit(name)
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		default:
			err = fmt.Errorf("%s is neither a file nor a folder", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// Sources returns the files on the disk of the router that a mount copies, as far as they can be
// read.
func (m *Mount) Sources() (all []string) {
	if m.Folder == "" {
		return []string{m.from()}
	}
	root, err := os.OpenRoot(m.Folder)
	if err != nil {
		return nil
	}
	defer root.Close()
	_ = walk(root, ".", func(name string) error { // Load reports its errors
		if len(all) == MaxFiles {
			return errEnough
		}
		all = append(all, filepath.Join(m.Folder, filepath.FromSlash(name)))
		return nil
	})
	return all
}
