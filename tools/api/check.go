package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"

	"golang.org/x/tools/txtar"
)

// check returns the packages of an archive by their paths. A type of another package has a name
// only.
func check(all *txtar.Archive) map[string]*types.Package {
	c := &checker{fset: token.NewFileSet(), files: map[string][]*ast.File{}, packages: map[string]*types.Package{}}
	for _, file := range all.Files {
		f, err := parser.ParseFile(c.fset, file.Name, file.Data, parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler reports it, and the names of the file are missing
		}
		pkg := module + "/" + path.Dir(file.Name)
		c.files[pkg] = append(c.files[pkg], f)
	}
	found := map[string]*types.Package{}
	for pkg := range c.files {
		found[pkg], _ = c.Import(pkg)
	}
	return found
}

// checker checks packages of which it knows the declarations.
type checker struct {
	fset     *token.FileSet
	files    map[string][]*ast.File
	packages map[string]*types.Package
}

// Import implements [types.Importer].
func (c *checker) Import(pkg string) (*types.Package, error) {
	if p := c.packages[pkg]; p != nil {
		return p, nil
	}
	files, known := c.files[pkg]
	if !known {
		c.packages[pkg] = types.NewPackage(pkg, nameOf(pkg))
		c.packages[pkg].MarkComplete()
		return c.packages[pkg], nil
	}
	for _, f := range files {
		c.addForeign(f)
	}
	// The comparison ignores errors about unused names, and about the types that have a name only.
	conf := types.Config{Importer: c, IgnoreFuncBodies: true, Error: func(error) {}}
	c.packages[pkg], _ = conf.Check(pkg, c.fset, files, nil)
	return c.packages[pkg], nil
}

// addForeign adds the types that a file uses of unknown packages to these.
func (c *checker) addForeign(f *ast.File) {
	imports := importsOf(f)
	parameters := map[ast.Expr]int{} // of generic types
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IndexExpr:
			parameters[n.X] = 1
		case *ast.IndexListExpr:
			parameters[n.X] = len(n.Indices)
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			from := imports[x.Name]
			if _, known := c.files[from]; known || from == "" {
				break
			}
			p, _ := c.Import(from)
			if p.Scope().Lookup(n.Sel.Name) == nil {
				declare(p, n.Sel.Name, parameters[n])
			}
		}
		return true
	})
}

// declare adds a type to a package, with a number of type parameters.
func declare(p *types.Package, name string, parameters int) {
	object := types.NewTypeName(token.NoPos, p, name, nil)
	named := types.NewNamed(object, types.NewStruct(nil, nil), nil)
	var all []*types.TypeParam
	for range parameters {
		anything := types.Universe.Lookup("any").Type()
		all = append(all, types.NewTypeParam(types.NewTypeName(token.NoPos, p, "T", nil), anything))
	}
	named.SetTypeParams(all)
	p.Scope().Insert(object)
}
