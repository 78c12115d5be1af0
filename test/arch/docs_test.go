package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testName = regexp.MustCompile(`\bTest[A-Z]\w+`)

// TestGuaranteesAreShown: the tests that docs/GUARANTEES.md names exist. A name may be the beginning of several.
func TestGuaranteesAreShown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "GUARANTEES.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := declaredTests(t)
	names := testName.FindAllString(string(text), -1)
	if len(names) < 10 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests, "\nfunc "+name) {
			t.Errorf("docs/GUARANTEES.md names %s, which does not exist", name)
		}
	}
}

// declaredTests returns the text of all test files.
func declaredTests(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"cmd", "pkg", "internal", "test"} {
		err := fs.WalkDir(os.DirFS(root), dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			src, err := os.ReadFile(filepath.Join(root, name))
			all.Write(src)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
