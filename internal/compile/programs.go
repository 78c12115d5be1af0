package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// checkPrograms reports the programs of handlers that may not be executed. It executes none. The
// content of a program is compared again when it is started.
func checkPrograms(cfg *config.Config, kinds []plugins.HandlerKind) (problems config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Handlers)) {
		c := cfg.Handlers[name]
		kind, ok := KindOf(kinds, c.Kind).(plugins.ProgramRunner)
		if !ok {
			continue
		}
		for _, program := range kind.Programs(c.Config) {
			if err := checkWhere(&cfg.Policy, program); err != nil {
				problems = append(problems, program.Node.Problemf("%v", err))
			} else if err := checkSum(program); err != nil {
				problems = append(problems, program.Sum.Problemf("%v", err))
			}
		}
	}
	return problems
}

// checkWhere checks everything about a program except its content. For a link it checks the target.
func checkWhere(policy *config.Policy, program plugins.Program) error {
	if err := policy.Program(program.File); err != nil {
		return err
	}
	info, err := os.Stat(program.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no program %s", program.File)
	case err != nil:
		return fmt.Errorf("the program cannot be read: %w", fileerr.Cause(err))
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", program.File)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable: chmod +x it", program.File)
	}
	return nil
}

func checkSum(program plugins.Program) error {
	f, err := os.Open(program.File)
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", program.File, fileerr.Cause(err))
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("%s cannot be read: %w", program.File, fileerr.Cause(err))
	}
	if is := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(is, program.SHA256) {
		return fmt.Errorf("%s differs from the configured program: its sha256 is %s", program.File, is)
	}
	return nil
}
