package routertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// InstallAPI is Install with the control API on the socket api.sock beside the file.
func InstallAPI(t *testing.T, kubeconfig, config string) (file string) {
	t.Helper()
	file = Install(t, kubeconfig, config)
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	const listen = `listen: {probes: "127.0.0.1:0"`
	with := strings.Replace(string(text), listen, listen+fmt.Sprintf(`, api: "unix:%s"`, filepath.Join(filepath.Dir(file), "api.sock")), 1)
	must.Succeed(t, os.WriteFile(file, []byte(with), 0o600))
	return file
}

// Status returns the output of `router status`: faults and their reasons. The configuration must be
// one of InstallAPI.
func (r *Router) Status(t *testing.T) string {
	t.Helper()
	out, _ := Control(t, r.file, "status")
	return out
}

// Control runs a command that uses the API of a configuration file's router, and returns its output
// and exit code.
func Control(t *testing.T, file string, args ...string) (out string, code int) {
	t.Helper()
	command := Command(append(args, "-config", file)...)
	command.Env = Environ(t)
	text, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(text), code
}
