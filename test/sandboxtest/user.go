package sandboxtest

import (
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// limited is a user of one test, whom the administrator impersonates.
type limited struct{ name, kubeconfig string }

// WithUser returns the sandbox with a user of this test in place of the user "limited". So a right
// in all namespaces that the test grants is not a right of other tests.
func (s *Sandbox) WithUser(tb testing.TB) *Sandbox {
	tb.Helper()
	own := *s
	own.limited = &limited{"limited-" + strings.ToLower(rand.Text()[:8]), filepath.Join(tb.TempDir(), "kubeconfig-limited")}
	cfg, err := clientcmd.LoadFromFile(s.Kubeconfig())
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	for _, user := range cfg.AuthInfos {
		user.Impersonate = own.limited.name
	}
	if err := clientcmd.WriteToFile(*cfg, own.limited.kubeconfig); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	return &own
}

// LimitedUser is the name of the user of LimitedKubeconfig.
func (s *Sandbox) LimitedUser() string {
	if s.limited != nil {
		return s.limited.name
	}
	return "limited"
}
