package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestVulncheck shows that tools/vulncheck.sh fails if vulnerabilities were found or the check
// failed, and reports a database that cannot be reached.
func TestVulncheck(t *testing.T) {
	for _, c := range []struct {
		name, program string
		fails         bool
		want          string
	}{
		{"nothing found", "echo 'No vulnerabilities found.'", false, "No vulnerabilities found."},
		{"found", "echo 'Your code is affected by 1 vulnerability'; exit 3", true, "vulncheck failed in: . tools/release"},
		{"found in one", `[ "$2" = . ] || exit 3`, true, "vulncheck failed in: tools/release"},
		{"no database", "echo 'govulncheck: fetching vulnerabilities: no such host' >&2; exit 1", false, "NOTE: nothing was checked"},
		{"another failure", "echo 'govulncheck: loading packages: no go.mod' >&2; exit 1", true, "vulncheck failed in: . tools/release"},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "govulncheck")
			must.Succeed(t, os.WriteFile(program, []byte("#!/bin/sh\n"+c.program+"\n"), 0o700))
			cmd := exec.Command("sh", "tools/vulncheck.sh", program)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "GOVULNDB=")
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.want) {
				t.Errorf("error %v, output, which should contain %q:\n%s", err, c.want, out)
			}
		})
	}
}
