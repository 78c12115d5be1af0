package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/codefolder"
)

// codeCache is a folder of compiled modules, which several processes may use at the same time. It
// contains a folder per module, named by the module's hash, with the files of wazero, whose names
// depend on its version and the processor, and a file with the hash of those. The hash is necessary
// because they are machine code, and wazero detects only some damage. A folder is filled under
// another name, so that a process that is killed, or compiles the same module, leaves nothing half
// done. The zero codeCache stores nothing.
type codeCache struct {
	dir string
	max int64 // bytes; what was not used for longest is removed
}

const (
	sealFile  = "sha256"
	newPrefix = "new-" // of a folder that is being filled

	maxCode   = 1 << 30             // of several dozens of modules in Go
	keepCode  = 30 * 24 * time.Hour // entries that were unused for so long are removed
	abandoned = time.Hour           // after so long a folder that is being filled was left by a dead process
)

// place is where the code of a module is read, or written. The zero place is none.
type place struct {
	dir   string   // for wazero
	final string   // the folder of the module; dir, or the name that dir gets
	kept  bool     // dir has the intact code
	files []string // of dir, if kept
}

// open returns the place of a module.
func (c codeCache) open(module []byte) (place, error) {
	if c.dir == "" {
		return place{}, nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return place{}, err
	}
	if err := codefolder.Check(c.dir); err != nil { // its content is executed
		return place{}, err
	}
	hash := sha256.Sum256(module)
	final := filepath.Join(c.dir, hex.EncodeToString(hash[:16]))
	if files, intact := sealed(final); intact {
		return place{final, final, true, files}, nil
	}
	_ = os.RemoveAll(final) // if that fails, its hash does not match
	dir, err := os.MkdirTemp(c.dir, newPrefix+"*")
	return place{dir, final, false, nil}, err
}

// sealed returns the files of a folder, and whether their hash is the one in the folder.
func sealed(dir string) (files []string, intact bool) {
	seal, err := os.ReadFile(filepath.Join(dir, sealFile))
	if err != nil {
		return nil, false
	}
	sum, files, err := sumOf(dir)
	return files, err == nil && sum == string(seal)
}

// keep keeps the code after the module was compiled or loaded. A folder that is read-only may be
// filled in advance, as in an image.
func (c codeCache) keep(p place) error {
	if p.dir == "" {
		return nil
	}
	seal := filepath.Join(p.dir, sealFile)
	if files, err := filesOf(p.dir); p.kept && err == nil && slices.Equal(files, p.files) {
		now := time.Now()
		_ = os.Chtimes(seal, now, now) // the order of removal
		return nil
	}
	sum, _, err := sumOf(p.dir)
	if err == nil {
		err = os.WriteFile(seal, []byte(sum), 0o600)
	}
	if err == nil && !p.kept {
		err = p.rename()
	}
	if err != nil {
		return err
	}
	c.prune(time.Now())
	return nil
}

// rename gives a folder its final name. Another process may have compiled the module meanwhile.
func (p place) rename() error {
	err := os.Rename(p.dir, p.final)
	if err == nil {
		return nil
	}
	p.discard()
	if _, intact := sealed(p.final); intact {
		return nil
	}
	return err
}

// discard removes code that may be the reason why a module cannot be compiled.
func (p place) discard() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir) // it is not read without a hash
	}
}

// prune removes modules that were not used for a long time, folders of dead processes, and what was
// not used for longest, so that at most c.max bytes are left. Errors are ignored: the folder is
// only larger then.
func (c codeCache) prune(now time.Time) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	type module struct {
		dir  string
		size int64
		used time.Time
	}
	var modules []module
	var total int64
	for _, e := range entries {
		m := module{dir: filepath.Join(c.dir, e.Name())}
		keep := keepCode
		info, err := os.Stat(filepath.Join(m.dir, sealFile))
		if strings.HasPrefix(e.Name(), newPrefix) {
			info, err = e.Info()
			keep = abandoned
		}
		if err != nil {
			continue
		}
		if m.used = info.ModTime(); now.Sub(m.used) > keep {
			_ = os.RemoveAll(m.dir)
			continue
		}
		if keep == keepCode {
			m.size = sizeOf(m.dir)
			total += m.size
			modules = append(modules, m)
		}
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.dir, b.dir)) })
	for _, m := range modules {
		if total <= c.max {
			return
		}
		if os.RemoveAll(m.dir) == nil {
			total -= m.size
		}
	}
}

func sizeOf(dir string) (size int64) {
	files, err := filesOf(dir)
	if err != nil {
		return 0
	}
	for _, name := range files {
		if info, err := os.Lstat(name); err == nil {
			size += info.Size()
		}
	}
	return size
}

// errNoFile reports something in a folder that wazero does not write.
var errNoFile = errors.New("neither a file nor a folder")

// filesOf returns the sorted paths of all files in a folder, without the hash file.
func filesOf(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir() && !d.Type().IsRegular(): // a link may lead anywhere
			return fmt.Errorf("%s: %w", path, errNoFile)
		case !d.IsDir() && d.Name() != sealFile:
			files = append(files, path)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// sumOf returns the hash of all files in a folder with their names, and the files.
func sumOf(dir string) (hash string, files []string, err error) {
	files, err = filesOf(dir)
	sum := sha256.New()
	for _, name := range files {
		if err == nil {
			err = addFile(sum, name)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), files, err
}

func addFile(sum io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(sum, "%s\n", filepath.Base(name))
	_, err = io.Copy(sum, f)
	return err
}
