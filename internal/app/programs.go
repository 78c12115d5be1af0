package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// checkPrograms finds the programs of handlers that may not be run: whoever may write the configuration must not thereby be able to run
// anything on this machine. What is run is compared once more, when it is.
func checkPrograms(cfg *config.Config, factories []plugins.Factory[plugins.Handler]) (problems config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Handlers)) {
		c := cfg.Handlers[name]
		f := factoryOf(factories, c.Kind)
		if f == nil || f.Programs == nil {
			continue
		}
		for _, program := range f.Programs(c.Config) {
			if err := checkWhere(cfg, program); err != nil {
				problems = append(problems, program.Node.Problemf("%v", err))
			} else if err := checkSum(program); err != nil {
				problems = append(problems, program.Sum.Problemf("%v", err))
			}
		}
	}
	return problems
}

// checkWhere returns what is wrong with a program but for its content. Links count where they lead to.
func checkWhere(cfg *config.Config, program plugins.Program) error {
	if len(cfg.Plugins.Dirs) == 0 {
		return errors.New("programs are run only out of the folders of plugins.dirs, and there are none: add plugins: {dirs: [FOLDER]}")
	}
	file, err := filepath.EvalSymlinks(program.File)
	if err != nil {
		return fmt.Errorf("the program cannot be read: %w", err)
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return fmt.Errorf("the program cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", program.File)
	case !slices.ContainsFunc(cfg.Plugins.Dirs, func(dir string) bool { return inFolder(dir, file) }):
		return fmt.Errorf("%s is in none of the folders of plugins.dirs (%s): move it there, or add its folder",
			program.File, strings.Join(cfg.Plugins.Dirs, ", "))
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable: chmod +x it", program.File)
	}
	return nil
}

// inFolder reports whether a file, whose path has no links, is in a folder or below it.
func inFolder(dir, file string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	dir, errDir := filepath.Abs(dir)
	file, errFile := filepath.Abs(file)
	if errDir != nil || errFile != nil {
		return false
	}
	inside, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(inside)
}

func checkSum(program plugins.Program) error {
	f, err := os.Open(program.File)
	if err != nil {
		var of *fs.PathError
		if errors.As(err, &of) {
			err = of.Err
		}
		return fmt.Errorf("%s cannot be read: %w", program.File, err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("%s cannot be read: %w", program.File, err)
	}
	if is := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(is, program.SHA256) {
		return fmt.Errorf("%s is another program: its sha256 is %s", program.File, is)
	}
	return nil
}
