// Package plugincmd has the commands of router plugin that need a handler or a module, but no
// source code: they run and measure a handler of a configuration, describe modules, and exchange
// them with registries.
package plugincmd

import (
	"fmt"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
)

// Commands returns the commands. components returns the kinds of handlers of the program.
func Commands(components compile.Components) []cli.Command {
	return []cli.Command{runCommand(components), benchCommand(components), replayCommand(components), inspectCommand(), pushCommand(), pullCommand(), verifyCommand()}
}

// Size words a number of bytes.
func Size(bytes float64) string {
	for _, unit := range []string{"bytes", "KiB", "MiB"} {
		if bytes < 1024 {
			if unit == "bytes" {
				return fmt.Sprintf("%.0f %s", bytes, unit)
			}
			return fmt.Sprintf("%.1f %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.1f GiB", bytes)
}
