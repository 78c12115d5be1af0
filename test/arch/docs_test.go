package arch

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

var (
	// cited matches a folder, a test in it, or a script, in the last cell of a row.
	cited = regexp.MustCompile("`([a-z][\\w-]*/[\\w/-]*)`|\\b((?:Test|Fuzz)[A-Z]\\w*)|([\\w-]+\\.txtar)")
	// anywhere matches the name of a test outside of the tables.
	anywhere = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
)

// TestSecurityIsShown shows that each row of the tables of SECURITY.md with a column "shown by"
// names tests, that each test is in the folder before it, and that tests named in the text exist,
// in docs/GUARANTEES.md too.
func TestSecurityIsShown(t *testing.T) {
	tests := declaredTests(t)
	if rows := checkShown(t, "SECURITY.md", tests); rows < 30 {
		t.Errorf("SECURITY.md: only %d rows were found", rows)
	}
	checkShown(t, guaranteesFile, tests)
}

// checkShown checks the citations of one document and returns its number of rows.
func checkShown(t *testing.T, name string, tests map[string]map[string]bool) (rows int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	must.Succeed(t, err)
	inTable := false
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case !strings.HasPrefix(line, "|"):
			inTable = false
			for _, test := range anywhere.FindAllString(line, -1) {
				if !slices.ContainsFunc(slices.Collect(maps.Values(tests)), func(in map[string]bool) bool { return in[test] }) {
					t.Errorf("%s:%d names %s, which does not exist", name, i+1, test)
				}
			}
		case strings.HasSuffix(line, "| shown by |"):
			inTable = true
		case inTable && !strings.HasPrefix(line, "|---"):
			rows++
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			for _, wrong := range wrongCitations(tests, cells[len(cells)-1]) {
				t.Errorf("%s:%d: %s", name, i+1, wrong)
			}
		}
	}
	return rows
}

// wrongCitations returns the mistakes in the citations of a row. It contains tests by folder,
// several folders for the same tests, and tests without a folder, which are in test/sim.
func wrongCitations(tests map[string]map[string]bool, cell string) (wrong []string) {
	folders, named := []string{"test/sim"}, 0
	begun := true // the folders have tests, so the next folder begins a new list
	for _, m := range cited.FindAllStringSubmatch(cell, -1) {
		folder, test, script := m[1], m[2], m[3]
		switch {
		case folder != "" && begun:
			folders, begun = []string{folder}, false
		case folder != "":
			folders = append(folders, folder)
		default:
			begun = true
			named++
		}
		for _, folder := range folders {
			if test != "" && !tests[folder][test] {
				wrong = append(wrong, fmt.Sprintf("%s is not in %s", test, folder))
			}
			if _, err := os.Stat(filepath.Join(root, folder, "testdata", script)); script != "" && err != nil {
				wrong = append(wrong, fmt.Sprintf("%s is not in %s/testdata", script, folder))
			}
		}
	}
	if named == 0 || !begun {
		wrong = append(wrong, "names no test, or a folder without one")
	}
	return wrong
}

// TestCitations shows that the check finds wrong rows.
func TestCitations(t *testing.T) {
	tests := map[string]map[string]bool{"test/sim": {"TestA": true}, "pkg/x": {"TestB": true, "FuzzC": true}, "pkg/y": {"TestB": true}}
	for cell, want := range map[string]string{
		"TestA": "", "`pkg/x` TestB, FuzzC, `pkg/y` TestB": "", "`pkg/x`, `pkg/y` TestB (it counts)": "",
		"TestB":                  "TestB is not in test/sim",
		"`pkg/x` TestA":          "TestA is not in pkg/x",
		"`pkg/x`, `pkg/y` FuzzC": "FuzzC is not in pkg/y",
		"`pkg/x` tests":          "names no test, or a folder without one",
		"`pkg/x` TestB, `pkg/y`": "names no test, or a folder without one",
		"see below":              "names no test, or a folder without one",
		"`pkg/x` none.txtar":     "none.txtar is not in pkg/x/testdata",
	} {
		if got := strings.Join(wrongCitations(tests, cell), "; "); got != want {
			t.Errorf("%s: %q, want %q", cell, got, want)
		}
	}
}

var testDeclaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)`)

// declaredTests returns the names of all tests by folder.
func declaredTests(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, dir := range []string{"cmd", "pkg", "internal", "test", "tools/keyless"} {
		err := fs.WalkDir(os.DirFS(root), dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			src, err := os.ReadFile(filepath.Join(root, name))
			folder := path.Dir(name)
			if all[folder] == nil {
				all[folder] = map[string]bool{}
			}
			for _, m := range testDeclaration.FindAllSubmatch(src, -1) {
				all[folder][string(m[1])] = true
			}
			return err
		})
		must.Succeed(t, err)
	}
	return all
}

var architectureRow = regexp.MustCompile("(?m)^\\| (?:\\d+ \\| )?`([a-z][^`.]*)` \\|")

// TestArchitectureListsPackages shows that the table of docs/ARCHITECTURE.md has a row for each
// package of the router, and no row for a package that does not exist.
func TestArchitectureListsPackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	must.Succeed(t, err)
	rows := map[string]bool{}
	for _, match := range architectureRow.FindAllStringSubmatch(string(text), -1) {
		row := strings.TrimSuffix(match[1], "/")
		rows[row] = true
		if strings.Contains(row, "<") { // a pattern
			continue
		}
		if info, err := os.Stat(filepath.Join(root, row)); err != nil || !info.IsDir() {
			t.Errorf("docs/ARCHITECTURE.md has a row for %s, which does not exist", row)
		}
	}
	for pattern := range allowed {
		dir := strings.TrimSuffix(strings.TrimSuffix(pattern, "/..."), "/*")
		if (&file{dir: dir}).program() || rows[dir] || path.Dir(dir) == "pkg/plugins" || strings.HasSuffix(pattern, "/*") {
			continue
		}
		t.Errorf("docs/ARCHITECTURE.md has no row for %s", dir)
	}
}

// TestVersion shows that all files that name the version name the newest one of the changelog.
func TestVersion(t *testing.T) {
	versions := map[string]*regexp.Regexp{
		"CHANGELOG.md":                    regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$`),
		"README.md":                       regexp.MustCompile(`The last version is \[(.*)\]\(CHANGELOG\.md\)`),
		"deploy/chart/Chart.yaml":         regexp.MustCompile(`(?m)^version: (.*)$`),
		"sdk/rust/Cargo.toml":             regexp.MustCompile(`(?m)^version = "(.*)"$`),
		"sdk/assemblyscript/package.json": regexp.MustCompile(`(?m)^  "version": "(.*)",$`),
	}
	of := make(map[string]string, len(versions))
	for name, version := range versions {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		must.Succeed(t, err)
		match := version.FindSubmatch(text)
		if match == nil {
			t.Fatalf("%s has no version", name)
		}
		of[name] = string(match[1])
	}
	for name, version := range of {
		if newest := of["CHANGELOG.md"]; version != newest {
			t.Errorf("%s has the version %s, the newest of CHANGELOG.md is %s", name, version, newest)
		}
	}
}

// TestRooms compares internal/README.md with the folders of internal: it names each one, and no
// package that does not exist.
func TestRooms(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "internal", "README.md"))
	must.Succeed(t, err)
	named := make(map[string]bool)
	for _, m := range regexp.MustCompile("`([a-z][a-z/]*)(?:/…)?`").FindAllStringSubmatch(string(readme), -1) {
		dir := m[1]
		if _, inside, ok := strings.Cut(dir, "pkg/"); !ok {
			room, _, _ := strings.Cut(dir, "/")
			named[room] = true
			dir = "internal/" + dir
		} else if inside == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(dir))); err != nil {
			t.Errorf("internal/README.md names a package that does not exist: %v", err)
		}
	}
	rooms, err := os.ReadDir(filepath.Join(root, "internal"))
	must.Succeed(t, err)
	for _, room := range rooms {
		if room.IsDir() && !named[room.Name()] {
			t.Errorf("internal/README.md does not name %s", room.Name())
		}
	}
}
