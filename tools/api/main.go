// Api compares the exported names of the packages below pkg with those of the recorded state, and
// fails if a program that uses them would not compile any more and CHANGELOG.md does not say so.
//
//	go run ./tools/api            # compares
//	go run ./tools/api -record    # records the present state
//
// The package golang.org/x/exp/apidiff decides about compatibility. A type of an internal package
// counts if a package below pkg has an alias of it, because programs use it by that name.
//
// The recorded state, recorded.txt, is the source of the packages without function bodies and
// without what other programs cannot use. It is read like the present source, so nothing is
// compiled. Types of other modules are compared by their names, without type arguments. That a
// struct cannot be compared any more, because of a field that is not exported, is not noticed.
package main

import (
	"flag"
	"fmt"
	"go/types"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/txtar"
)

func main() {
	root := flag.String("root", ".", "folder of the repository")
	record := flag.Bool("record", false, "record the present state")
	flag.Parse()
	if err := run(os.Stdout, *root, *record); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, root string, record bool) error {
	recorded := filepath.Join(root, "tools", "api", "recorded.txt")
	now, err := read(os.DirFS(root))
	if err != nil {
		return err
	}
	if record {
		return os.WriteFile(recorded, txtar.Format(now), 0o644)
	}
	before, err := txtar.ParseFile(recorded)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	return report(out, compare(check(before), check(now)), unreleased(string(changelog)))
}

// change is an incompatible change.
type change struct {
	name string // as in plugins.Env.Name
	what string
}

// compare returns the incompatible changes.
func compare(before, now map[string]*types.Package) (changes []change) {
	for at, old := range before {
		p := now[at]
		switch {
		case internal(at):
			continue // see compareAliases
		case p == nil:
			changes = append(changes, change{path.Base(at), "the package is removed"})
			continue
		}
		for name, what := range incompatible(old, p) {
			changes = append(changes, change{path.Base(p.Path()) + "." + name, what})
		}
		changes = append(changes, compareAliases(old, p)...)
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.name, b.name) })
	return changes
}

// compareAliases compares the types of internal packages that a package has aliases of.
func compareAliases(old, p *types.Package) (changes []change) {
	for name, was := range aliases(old) {
		is := aliases(p)[name]
		if is == nil || is.Obj().Name() != was.Obj().Name() || is.Obj().Pkg().Path() != was.Obj().Pkg().Path() {
			continue // incompatible has reported it, or it is another type with a comparison of its own
		}
		for of, what := range incompatible(was.Obj().Pkg(), is.Obj().Pkg()) {
			if target, member, _ := strings.Cut(of, "."); target == was.Obj().Name() {
				changes = append(changes, change{strings.TrimSuffix(path.Base(p.Path())+"."+name+"."+member, "."), what})
			}
		}
	}
	return changes
}

// aliases returns the types of internal packages that a package has aliases of, by the alias.
func aliases(p *types.Package) map[string]*types.Named {
	all := map[string]*types.Named{}
	for _, name := range p.Scope().Names() {
		if object, ok := p.Scope().Lookup(name).(*types.TypeName); ok && object.Exported() && object.IsAlias() {
			if of, ok := types.Unalias(object.Type()).(*types.Named); ok && of.Obj().Pkg() != nil && internal(of.Obj().Pkg().Path()) {
				all[name] = of
			}
		}
	}
	return all
}

// subject matches the name at the begin of a message of apidiff: T.M, (*T).M or T[P].M.
var subject = regexp.MustCompile(`^\(?\*?(\w+)(?:\[[^\]]*\])?\)?(\.[\w.]+)?`)

// incompatible returns the incompatible changes of a package, by name.
func incompatible(old, now *types.Package) map[string]string {
	all := map[string]string{}
	for _, c := range apidiff.Changes(old, now).Changes {
		if c.Compatible {
			continue
		}
		name, what, _ := strings.Cut(strings.ReplaceAll(c.Message, module+"/pkg/", ""), ": ")
		if m := subject.FindStringSubmatch(name); m != nil {
			name = m[1] + m[2]
		}
		if all[name] == "" { // the others repeat it for other types that have it
			all[name] = what
		}
	}
	return all
}

// unreleased returns the section of the changelog about unreleased changes.
func unreleased(changelog string) string {
	_, rest, _ := strings.Cut(changelog, "\n## Unreleased\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	return section
}

// report prints the incompatible changes that the changelog does not name. It may name a type for
// all of its members.
func report(out io.Writer, changes []change, changelog string) error {
	unnamed := map[string]bool{}
	for _, c := range changes {
		parts := strings.Split(c.name, ".")
		if strings.Contains(changelog, "`"+c.name+"`") || len(parts) > 2 && strings.Contains(changelog, "`"+parts[0]+"."+parts[1]+"`") {
			continue
		}
		fmt.Fprintf(out, "%s: %s\n", c.name, c.what)
		unnamed[c.name] = true
	}
	if len(unnamed) == 0 {
		return nil
	}
	return fmt.Errorf("programs that use these would not compile any more: keep them, or name `%s` in CHANGELOG.md under Unreleased, with what to write instead",
		strings.Join(slices.Sorted(maps.Keys(unnamed)), "`, `"))
}
