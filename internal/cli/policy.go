// Package cli has the shared parts of the router's commands: the table of commands with its help
// and completion, flags, printing, colours and progress in a terminal, and the connection to a
// running router.
package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// PolicyFlags adds the flags of a policy.
func PolicyFlags(f *Flags, p *config.Policy) {
	f.Group("Flags about the programs and files of this machine that the configuration may use", func() {
		f.BoolVar(&p.AllowExec, "allow-exec", false, "run credential programs of kubeconfigs (exec, auth-provider) and of Docker")
		f.BoolVar(&p.RequireDigests, "require-digests", false,
			"each WebAssembly module must have its sha256 in the configuration, as native plugins must")
		foldersVar(f, &p.PluginDirs, "plugin-dir", "native plugins are run from this folder only (default: none is run)")
		foldersVar(f, &p.SecretDirs, "secret-dir", "{file: …} may name files of this folder only (default: any file)")
		foldersVar(f, &p.FileDirs, "file-dir", "all other files must be in this folder: modules, kubeconfigs, "+
			"state.dir, files of sinks, sockets, schemas (default: anywhere)")
	})
}

func foldersVar(f *Flags, dirs *[]string, name, usage string) {
	f.Func(name, "`FOLDER` "+usage+"; may be given several times", func(text string) error {
		dir, err := folder(text)
		*dirs = append(*dirs, dir)
		return err
	})
}

// folder returns the whole path of a folder: a relative one must not be another one later.
func folder(text string) (string, error) {
	if text == "" {
		return "", errors.New("it is empty: give a folder")
	}
	info, err := os.Stat(text)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("there is no such folder")
	case err != nil:
		return "", fmt.Errorf("the folder cannot be read: %w", fileerr.Cause(err))
	case !info.IsDir():
		return "", errors.New("it is not a folder")
	}
	return filepath.Abs(text)
}
