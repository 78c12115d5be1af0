package arch

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// exposed lists the exported names of public packages that mention a type of an internal package,
// and the reason. Other programs cannot name such a type, and its changes break their builds.
var exposed = map[string]string{
	"pkg/filters.CELConfig.Program: internal/cel.Program": "for the router itself, whose compiler knows the types of a cluster: other programs use filters.Compile",
	"pkg/index.NewSpec: internal/cel.Program":             "for the router itself, whose compiler knows the types of a cluster: other programs use index.Compile",
}

// TestExposed shows that other programs can name each type of the packages that they can import. A
// type of an internal package has a public name if a public package has an alias of it.
func TestExposed(t *testing.T) {
	all := &sources{fset: token.NewFileSet(), packages: map[string]*types.Package{}}
	var found []string
	for _, p := range all.public(t) {
		found = append(found, all.exposedBy(p)...)
	}
	for _, name := range found {
		if exposed[name] == "" {
			t.Errorf("%s is not a type that other programs can name: define an interface or a type below pkg, or hide it", name)
		}
	}
	for name := range exposed {
		if !slices.Contains(found, name) {
			t.Errorf("the exception for %s is not needed any more", name)
		}
	}
}

// TestPlantedExposure shows that the check finds the types of internal packages, wherever they are.
func TestPlantedExposure(t *testing.T) {
	const inside = "package in\ntype T struct{ X U }\ntype U int\nfunc (T) M() V { return 0 }\ntype V int\n"
	for src, want := range map[string]string{
		"func F(a, b in.T) {}":                        "pkg/p.F: internal/in.T",
		"func F() (map[string][]*in.U, error)":        "pkg/p.F: internal/in.U",
		"func f(in.T) {}":                             "",
		"type S struct{ A int; b in.T }":              "",
		"type S struct{ A func(in.T) }":               "pkg/p.S.A: internal/in.T",
		"type S struct{ in.T }":                       "pkg/p.S.T: internal/in.T",
		"type s struct{ A in.T }\ntype S struct{ s }": "pkg/p.S.s.A: internal/in.T",
		"type S int\nfunc (S) M(...in.T) {}":          "pkg/p.S.M: internal/in.T",
		"type S int\nfunc (S) m(in.T) {}":             "",
		"type I interface{ M() <-chan in.T }":         "pkg/p.I.M: internal/in.T",
		"type G[P in.T | int] struct{}":               "pkg/p.G: internal/in.T",
		"var V = in.T{}":                              "pkg/p.V: internal/in.T",
		"import \"iter\"\nfunc F() iter.Seq[in.U]":    "pkg/p.F: internal/in.U",
		"type A = in.U\nfunc F() in.U":                "",
		"type A = in.T":                               "pkg/p.A.X: internal/in.U; pkg/p.A.M: internal/in.V",
		"type A = in.T\ntype B = in.U\ntype C = in.V": "",
	} {
		imports, rest := "import \"iter\"", strings.TrimPrefix(src, "import \"iter\"")
		if rest == src {
			imports = ""
		}
		all := &sources{fset: token.NewFileSet(), packages: map[string]*types.Package{}}
		all.check(module+"/internal/in", all.parse("in.go", inside))
		p := all.check(module+"/pkg/p", all.parse("p.go", "package p\n"+imports+"\nimport \""+module+"/internal/in\"\n"+rest+"\n"))
		all.addNames(p)
		if got := strings.Join(all.exposedBy(p), "; "); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", src, got, want)
		}
	}
}

// sources are the packages of this module, of which only the declarations are checked. Those of
// other modules are empty: a type of them is not internal. So nothing is compiled.
type sources struct {
	fset     *token.FileSet
	packages map[string]*types.Package
	named    map[*types.TypeName]bool // the types of internal packages with a public name
}

// public loads the public packages, and the public names of internal types.
func (s *sources) public(t *testing.T) (all []*types.Package) {
	t.Helper()
	for _, dir := range publicPackages(t) {
		p, err := s.Import(module + "/" + dir)
		must.Succeed(t, err)
		s.addNames(p)
		all = append(all, p)
	}
	return all
}

// Import implements [types.Importer].
func (s *sources) Import(path string) (*types.Package, error) {
	if p := s.packages[path]; p != nil {
		return p, nil
	}
	var files []*ast.File
	if own, ok := strings.CutPrefix(path, module+"/"); ok {
		dir := filepath.Join(root, filepath.FromSlash(own))
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			name := entry.Name()
			if match, err := build.Default.MatchFile(dir, name); err != nil || !match || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			files = append(files, s.parse(name, string(src)))
		}
	}
	if path == "iter" {
		files = append(files, s.parse("iter.go", "package iter\ntype Seq[V any] func(yield func(V) bool)\ntype Seq2[K, V any] func(yield func(K, V) bool)\n"))
	}
	return s.check(path, files...), nil
}

func (s *sources) parse(name, src string) *ast.File {
	f, err := parser.ParseFile(s.fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		panic(err) // the compiler reports it, too
	}
	return f
}

// check checks the declarations of a package, with errors about the empty packages of other
// modules.
func (s *sources) check(path string, files ...*ast.File) *types.Package {
	conf := types.Config{Importer: s, IgnoreFuncBodies: true, Error: func(error) {}}
	p, _ := conf.Check(path, s.fset, files, nil)
	if len(files) == 0 {
		p.SetName(path[strings.LastIndex(path, "/")+1:])
	}
	p.MarkComplete()
	s.packages[path] = p
	return p
}

// addNames notes the internal types of which a public package has an alias.
func (s *sources) addNames(p *types.Package) {
	if s.named == nil {
		s.named = map[*types.TypeName]bool{}
	}
	for _, name := range p.Scope().Names() {
		if alias, ok := p.Scope().Lookup(name).Type().(*types.Alias); ok && token.IsExported(name) {
			if of, ok := types.Unalias(alias).(*types.Named); ok {
				s.named[of.Obj()] = true
			}
		}
	}
}

// exposedBy returns the types that a package exposes, each with the name that exposes it.
func (s *sources) exposedBy(p *types.Package) (found []string) {
	v := &exposure{sources: s, seen: map[string]bool{}}
	for _, name := range p.Scope().Names() {
		object := p.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		at := strings.TrimPrefix(p.Path(), module+"/") + "." + name
		of := types.Unalias(object.Type())
		if _, ok := object.(*types.TypeName); !ok {
			v.walk(at, object.Type())
		} else if named, ok := of.(*types.Named); ok {
			v.members(at, named)
		} else {
			v.walk(at, of)
		}
	}
	return v.found
}

// exposure collects the internal types in the types of a package.
type exposure struct {
	*sources

	seen  map[string]bool
	found []string
}

// members walks the exported members of a type.
func (v *exposure) members(at string, named *types.Named) {
	for p := range named.TypeParams().TypeParams() {
		v.walk(at, p.Constraint())
	}
	v.walk(at, named.Underlying())
	for m := range named.Methods() {
		if m.Exported() {
			v.walk(at+"."+m.Name(), m.Type())
		}
	}
}

// walk visits a type and its parts.
func (v *exposure) walk(at string, of types.Type) {
	switch of := of.(type) {
	case *types.Alias:
		if token.IsExported(of.Obj().Name()) && of.Obj().Pkg() != nil && !internal(of.Obj().Pkg().Path()) {
			return // it has a public name, where its members are walked
		}
		v.walk(at, types.Unalias(of))
	case *types.Named:
		v.name(at, of)
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels and maps
		if m, ok := of.(*types.Map); ok {
			v.walk(at, m.Key())
		}
		v.walk(at, of.Elem())
	case *types.Signature:
		for _, list := range []*types.Tuple{of.Params(), of.Results()} {
			for p := range list.Variables() {
				v.walk(at, p.Type())
			}
		}
	case *types.Struct:
		for f := range of.Fields() {
			if f.Exported() || f.Embedded() {
				v.walk(at+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range of.ExplicitMethods() {
			if m.Exported() {
				v.walk(at+"."+m.Name(), m.Type())
			}
		}
		for e := range of.EmbeddedTypes() {
			v.walk(at, e)
		}
	case *types.Union:
		for term := range of.Terms() {
			v.walk(at, term.Type())
		}
	}
}

// name visits a type by its name.
func (v *exposure) name(at string, of *types.Named) {
	for arg := range of.TypeArgs().Types() {
		v.walk(at, arg)
	}
	object := of.Obj()
	switch {
	case object.Pkg() == nil: // error
	case internal(object.Pkg().Path()):
		if line := fmt.Sprintf("%s: %s.%s", at, strings.TrimPrefix(object.Pkg().Path(), module+"/"), object.Name()); !v.named[object] && !v.seen[line] {
			v.seen[line] = true
			v.found = append(v.found, line)
		}
	case !object.Exported() && !v.seen[at+object.Name()]: // its exported members can be used
		v.seen[at+object.Name()] = true
		v.members(at, of)
	}
}

// internal reports whether other programs cannot import a package of this module.
func internal(path string) bool {
	own, ok := strings.CutPrefix(path, module+"/")
	return ok && slices.Contains(strings.Split(own, "/"), "internal")
}
