// Package cli is what the commands of the router share: flags, printing, and how to find a running
// router.
package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// PolicyUsage describes the flags of PolicyFlags.
const PolicyUsage = `
These flags say which programs and files of this machine the configuration may use; the configuration cannot:
  -plugin-dir FOLDER  native plugins may be run from here; may be given several times (default: none is run)
  -allow-exec         run the credential plugins that kubeconfigs name (exec, auth-provider)
  -require-digests    each WebAssembly module must have its sha256 in the configuration, as native plugins must
  -secret-dir FOLDER  {file: …} may name files here only; may be given several times (default: any file)
  -file-dir FOLDER    all else that is named must lie here: modules, kubeconfigs, state.dir, files of sinks, sockets, schemas; may be
                      given several times (default: anywhere)
`

// PolicyFlags adds the flags of a policy.
func PolicyFlags(flags *flag.FlagSet, p *config.Policy) {
	flags.BoolVar(&p.AllowExec, "allow-exec", false, "")
	flags.BoolVar(&p.RequireDigests, "require-digests", false, "")
	for name, dirs := range map[string]*[]string{"plugin-dir": &p.PluginDirs, "secret-dir": &p.SecretDirs, "file-dir": &p.FileDirs} {
		flags.Func(name, "", func(text string) error {
			dir, err := folder(text)
			*dirs = append(*dirs, dir)
			return err
		})
	}
}

// folder returns the whole path of a folder: a relative one must not be another one later.
func folder(text string) (string, error) {
	if text == "" {
		return "", errors.New("it is empty: give a folder")
	}
	info, err := os.Stat(text)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", text)
	}
	return filepath.Abs(text)
}
