package routertest

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// Reload exchanges the configuration as a ConfigMap mount does, or, with SIGHUP, as an editor does, and waits until the router has
// taken or refused it.
func (r *Router) Reload(t *testing.T, file, config string, signal bool) {
	t.Helper()
	done := func(log string) int {
		return strings.Count(log, `"msg":"reloaded"`) + strings.Count(log, `"msg":"the configuration is not reloaded"`)
	}
	before := done(r.Log())
	Exchange(t, file, config)
	if signal {
		if err := r.Process().Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitLog(t, "the reload", func(log string) bool { return done(log) > before })
}

// Exchange puts another file in the place of one, in one step.
func Exchange(t *testing.T, file, text string) {
	t.Helper()
	beside := file + ".new"
	if err := os.WriteFile(beside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(beside, file); err != nil {
		t.Fatal(err)
	}
}
