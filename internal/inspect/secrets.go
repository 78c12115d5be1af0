package inspect

import (
	"strings"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// SecretChecks returns a check for each part of the configuration that has a secret without a value
// now, named like sinks/slack. It does not make the router unready: only what uses that part waits.
// The texts name files and variables, and never contain a value.
func SecretChecks(of *config.Config) (checks []api.Check) {
	for _, p := range of.MissingSecrets() {
		name, path, _ := strings.Cut(p.Path, ".")
		if name == "sinks" || name == "handlers" {
			var part string
			part, path, _ = strings.Cut(path, ".")
			name += "/" + part
		}
		checks = append(checks, api.Check{Name: name, Message: path + " " + p.Message})
	}
	return checks
}

// SecretChecks returns the checks of the configuration's secrets.
func (inv *Inventory) SecretChecks() []api.Check { return SecretChecks(inv.config) }
