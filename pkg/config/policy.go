package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Policy is the part of the machine that a configuration may use. It comes from the command line:
// the permission to edit the configuration does not include the permission to run programs. The
// zero Policy allows no program, and all paths.
type Policy struct {
	// folders of the programs for the kind process; none: no program is allowed
	PluginDirs []string
	AllowExec  bool     // allows credential plugins of kubeconfigs
	SecretDirs []string // folders of the files in {file: …}; none: all files are allowed
	FileDirs   []string // folders of all other paths; none: all paths are allowed

	RequireDigests bool // requires the SHA-256 of each WebAssembly module
}

// check returns the reason why a configuration may not name a path. Both the path itself and the
// target of its links must be in an allowed folder. Otherwise a link outside the folders could be
// changed after the check.
func (p *Policy) check(class, path string) error {
	dirs, flag := p.FileDirs, "-file-dir"
	if class == tags.PathSecret {
		dirs, flag = p.SecretDirs, "-secret-dir"
	}
	if len(dirs) > 0 {
		inside, err := inAny(dirs, path)
		if err != nil {
			return err
		}
		if !inside {
			return fmt.Errorf("%s is in none of the folders that the router was started with (%s %s): move it there, or start the router with another %s",
				path, flag, strings.Join(dirs, " "+flag+" "), flag)
		}
	}
	if class == tags.PathWritten && slices.ContainsFunc(p.PluginDirs, func(dir string) bool { return contains(resolve(dir), resolve(path)) }) {
		return fmt.Errorf("%s is in a folder of programs (-plugin-dir), where the router writes nothing: choose another path", path)
	}
	return nil
}

// Program returns the reason why a file may not be run as a plugin. Only the target of its links
// counts, because the file is copied and its content compared before it is run.
func (p *Policy) Program(file string) error {
	if len(p.PluginDirs) == 0 {
		return errors.New("programs are run only from folders that the router was started with: add -plugin-dir FOLDER to its command line")
	}
	resolved, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no program %s", file)
	}
	if err != nil {
		return fmt.Errorf("the program cannot be read: %w", fileerr.Cause(err))
	}
	if !slices.ContainsFunc(p.PluginDirs, func(dir string) bool { return contains(resolve(dir), resolve(resolved)) }) {
		return fmt.Errorf("%s is in none of the folders of programs (-plugin-dir %s): move it there, or start the router with another -plugin-dir",
			file, strings.Join(p.PluginDirs, " -plugin-dir "))
	}
	return nil
}

// Credentials returns the reason why credentials of a kubeconfig may not be used. exec: a program
// provides them. provider: an auth-provider does.
func (p *Policy) Credentials(exec, provider bool) error {
	switch {
	case p.AllowExec || !exec && !provider:
		return nil
	case exec:
		return errors.New("its user gets credentials from a program (exec), which is not run: use a token or a certificate, or start the router with -allow-exec")
	}
	return errors.New("its user gets credentials from an auth-provider, which is not used: use a token or a certificate, or start the router with -allow-exec")
}

// inAny reports whether a path is below one of the folders, both itself and after its links were
// resolved.
func inAny(dirs []string, path string) (bool, error) {
	written, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	resolved := resolve(written)
	for _, dir := range dirs {
		of, err := filepath.Abs(dir)
		if err != nil {
			return false, err
		}
		if contains(of, written) && contains(resolve(of), resolved) {
			return true, nil
		}
	}
	return false, nil
}

func contains(dir, path string) bool {
	if dir == "" || path == "" {
		return false
	}
	inside, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(inside)
}

// resolve resolves the links of a path as far as the path exists. If the target of a link does not
// exist, the result is empty, which is in no folder.
func resolve(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	parent := filepath.Dir(path)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || parent == path {
		return ""
	}
	if parent = resolve(parent); parent == "" {
		return ""
	}
	return filepath.Join(parent, filepath.Base(path))
}
