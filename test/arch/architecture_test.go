package arch

import (
	"cmp"
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
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

// TestArchitectureTables shows that the tables of docs/ARCHITECTURE.md agree with the packages,
// their comments and the table of imports. -update writes them.
func TestArchitectureTables(t *testing.T) {
	file := filepath.Join(root, "docs", "ARCHITECTURE.md")
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	now := string(text)
	for _, table := range []struct{ name, content string }{{"packages", packageTable(t)}, {"homes", homeTable()}} {
		begin, end := "<!-- "+table.name+": generated -->\n", "<!-- end -->\n"
		before, rest, found := strings.Cut(now, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("docs/ARCHITECTURE.md has no lines %q and %q", begin, end)
		}
		now = before + begin + "\n" + table.content + "\n" + end + after
	}
	if *update {
		must.Succeed(t, os.WriteFile(file, []byte(now), 0o644))
	} else if now != string(text) {
		t.Error("a table of docs/ARCHITECTURE.md is out of date: run go test ./test/arch -run TestArchitectureTables -update")
	}
}

// packageTable has a row for each package of the router, from the lowest floor to the highest.
func packageTable(t *testing.T) string {
	t.Helper()
	type row struct {
		dir, content string
		floor        int
	}
	var rows []row
	contents := synopses(t)
	known := make(floors)
	for dir, content := range contents {
		rows = append(rows, row{dir, content, known.of(dir, contents)})
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(a.floor-b.floor, strings.Compare(a.dir, b.dir)) })
	var b strings.Builder
	b.WriteString("| floor | package | content |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", r.floor, r.dir, r.content)
	}
	return b.String()
}

// homeTable has a row for each dependency with a home.
func homeTable() string {
	var b strings.Builder
	b.WriteString("| dependency | imported by |\n|---|---|\n")
	for _, dep := range slices.Sorted(maps.Keys(homes)) {
		by := "no package of the router"
		if len(homes[dep]) > 0 {
			by = "`" + strings.Join(homes[dep], "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", dep, by)
	}
	return b.String()
}

// floors are the lengths of the longest chains of permitted imports, by package.
type floors map[string]int

// of returns the floor of a package. all are the packages of the router, for imports that are
// patterns.
func (f floors) of(dir string, all map[string]string) int {
	if n, ok := f[dir]; ok {
		return n
	}
	n := 0
	rule, _ := ruleOf(dir)
	for _, imported := range rule {
		below, pattern := strings.CutSuffix(imported, "/...")
		for other := range all {
			if other != dir && (other == below || pattern && under(other, below)) {
				n = max(n, 1+f.of(other, all))
			}
		}
	}
	f[dir] = n
	return n
}

var (
	aboutPackage = regexp.MustCompile(`^(?:Package|Command) \w+ (.*?)[.:]?$`)
	link         = regexp.MustCompile(`\[([\w.]+)\]`) // in a comment
)

// synopses returns the first sentence of each package comment, without the name of the package.
func synopses(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, top := range []string{"cmd", "internal", "pkg"} {
		err := fs.WalkDir(os.DirFS(root), top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" {
				return cmp.Or(err, fs.SkipDir)
			}
			if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil || tree.Doc == nil {
				return err
			}
			synopsis := new(doc.Package).Synopsis(link.ReplaceAllString(tree.Doc.Text(), "$1"))
			if m := aboutPackage.FindStringSubmatch(synopsis); m != nil {
				all[path.Dir(name)] = strings.ReplaceAll(m[1], "|", `\|`)
			}
			return nil
		})
		must.Succeed(t, err)
	}
	return all
}

// TestDiagramsNamePackages shows that the packages in the diagrams of docs/img exist.
func TestDiagramsNamePackages(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "img", "*.diagram"))
	must.Succeed(t, err)
	named := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		joined := strings.ReplaceAll(string(text), `/" "`, "/") // a name in two lines
		for _, dir := range regexp.MustCompile(`\b(?:internal|pkg)/[\w/]+\w`).FindAllString(joined, -1) {
			named++
			if info, err := os.Stat(filepath.Join(root, dir)); err != nil || !info.IsDir() {
				t.Errorf("%s names %s, which does not exist", filepath.Base(file), dir)
			}
		}
	}
	if named < 15 {
		t.Errorf("only %d packages were found", named)
	}
}
