package tlsfiles_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func decode(t *testing.T, yaml string) (c tlsfiles.Config, problems config.Problems) {
	t.Helper()
	node, problems := config.ParseNode("test.yaml", []byte(yaml))
	must.Succeed(t, problems.Err())
	return c, node.Decode(&c)
}

// TestProblems shows that each mistake is reported with its position, and never with the content.
func TestProblems(t *testing.T) {
	for yaml, want := range map[string]string{
		"{}":                              "",
		"{ca: {file: /x}}":                "",
		"{ca: {env: X}, serverName: x}":   "",
		"ca: |\n  -----BEGIN CERTIFICATE": "",
		"{cert: {file: /x}}":              "needs both cert and key",
		"{key: {file: /x}}":               "needs both cert and key",
		"{ca: /s3cret/ca.pem}":            "ca: is no PEM: write {file: path}",
		"{cert: {file: x}, key: s3cret}":  "key: is no PEM",
		"{insecure: true}":                "unknown key",
	} {
		_, problems := decode(t, yaml)
		if want == "" && problems == nil {
			continue
		}
		if len(problems) != 1 || want == "" || !strings.Contains(problems.Error(), want) || strings.Contains(problems.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", yaml, problems, want)
		}
	}
}

// TestPrint shows that the print changes with the content of each file, and that the error names
// the key of an unreadable one.
func TestPrint(t *testing.T) {
	// Guarantee: certificate-renewal
	dir := t.TempDir()
	write := func(name, text string) {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	in := func(name string) string { return "{file: " + filepath.Join(dir, name) + "}" }
	c, problems := decode(t, "{ca: "+in("ca")+", cert: "+in("cert")+", key: "+in("key")+"}")
	if problems != nil {
		t.Fatal(problems)
	}
	seen := make(map[[32]byte]bool)
	for _, step := range []struct {
		file, text, want string
		isNew            bool
	}{
		{"ca", "a", "tls.cert: ", false},
		{"cert", "bc", "tls.key: ", false},
		{"key", "d", "", true},
		{"key", "d", "", false},
		{"key", "dd", "", true},
		{"cert", "bcx", "", true},
		{"ca", "ab", "", true},
		{"cert", "c", "", true}, // the same text in total, in other files
	} {
		write(step.file, step.text)
		sum, err := c.Print()
		if (err == nil) != (step.want == "") || err != nil && !strings.HasPrefix(err.Error(), step.want) {
			t.Errorf("%s %q: %v, want %q", step.file, step.text, err, step.want)
		}
		if err == nil && seen[sum] == step.isNew {
			t.Errorf("%s %q: new %v, want %v", step.file, step.text, !seen[sum], step.isNew)
		}
		if err == nil {
			seen[sum] = true
		}
	}
	none, _ := decode(t, "{}")
	if sum, err := none.Print(); err != nil || seen[sum] {
		t.Error(err)
	}
}
