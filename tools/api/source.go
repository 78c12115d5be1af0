package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// module is the import path of the root module.
const module = "github.com/deltarouter/deltarouter"

// internal reports whether other programs cannot import a package.
func internal(pkg string) bool { return slices.Contains(strings.Split(pkg, "/"), "internal") }

// read returns the declarations of the public packages, and of the internal packages that they have
// aliases of, with one file for each package.
func read(repository fs.FS) (*txtar.Archive, error) {
	var public []*source
	for _, pattern := range []string{"pkg/*", "pkg/*/*"} {
		dirs, err := fs.Glob(repository, pattern)
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			if internal(dir) {
				continue
			}
			if s, err := parse(repository, dir); err != nil {
				return nil, err
			} else if len(s.declared) > 0 {
				public = append(public, s)
			}
		}
	}
	if len(public) == 0 {
		return nil, errors.New("there is no package below pkg")
	}
	below := map[string]map[string]bool{} // the names that are used of internal packages, by folder
	for _, s := range public {
		s.keep(slices.DeleteFunc(slices.Collect(maps.Keys(s.declared)), func(name string) bool { return !ast.IsExported(name) }))
		for _, dir := range s.aliased() {
			below[dir] = map[string]bool{}
		}
	}
	all := &txtar.Archive{}
	for _, s := range public {
		for used := range s.used {
			dir, name := path.Split(used)
			if names := below[strings.TrimSuffix(dir, "/")]; names != nil {
				names[name] = true
			}
		}
		if err := s.print(all); err != nil {
			return nil, err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(below)) {
		s, err := parse(repository, dir)
		if err != nil {
			return nil, err
		}
		s.keep(slices.Collect(maps.Keys(below[dir])))
		if err := s.print(all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// source is the source of a package.
type source struct {
	dir, name string
	decls     []ast.Decl
	files     map[ast.Decl]map[string]string // the imports of the file of each declaration
	declared  map[string][]ast.Decl          // by each name; a type has its methods
	kept      map[ast.Decl]bool
	imports   map[string]string // of the kept declarations, by name
	used      map[string]bool   // names of this module that the kept declarations use: folder/name
}

// parse reads the declarations of a package, without bodies, comments, tags and what other programs
// cannot use of a struct.
func parse(repository fs.FS, dir string) (*source, error) {
	s := &source{
		dir: dir, files: map[ast.Decl]map[string]string{}, declared: map[string][]ast.Decl{},
		kept: map[ast.Decl]bool{}, imports: map[string]string{}, used: map[string]bool{},
	}
	names, err := fs.Glob(repository, dir+"/*.go")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		base := strings.TrimSuffix(name, ".go")
		if strings.HasSuffix(base, "_test") || strings.HasSuffix(base, "_other") { // declares what another file declares, too
			continue
		}
		src, err := fs.ReadFile(repository, name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.name = f.Name.Name
		imports := importsOf(f)
		for _, decl := range f.Decls {
			for _, part := range parts(decl) {
				s.decls = append(s.decls, part)
				s.files[part] = imports
				for _, name := range namesOf(part) {
					s.declared[name] = append(s.declared[name], part)
				}
			}
		}
	}
	return s, nil
}

// parts returns a declaration as those of one name each, as far as that is possible, and reduced to
// what other programs can use. A group of constants stays one, because they may count up.
func parts(decl ast.Decl) (all []ast.Decl) {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			n.Doc, n.Body = nil, nil
		case *ast.GenDecl:
			n.Doc = nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.Field:
			n.Doc, n.Comment, n.Tag = nil, nil, nil
		case *ast.StructType:
			n.Fields.List = slices.DeleteFunc(n.Fields.List, unusable)
		}
		return true
	})
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil || decl.Name.IsExported() {
			all = append(all, decl)
		}
	case *ast.GenDecl:
		switch decl.Tok {
		case token.CONST:
			all = append(all, decl)
		case token.VAR, token.TYPE:
			for _, spec := range decl.Specs {
				all = append(all, &ast.GenDecl{Tok: decl.Tok, Specs: []ast.Spec{spec}})
			}
		default: // imports
		}
	}
	return all
}

// unusable reports whether no name of a field is exported. An embedded type may have exported
// members.
func unusable(field *ast.Field) bool {
	return len(field.Names) > 0 && !slices.ContainsFunc(field.Names, (*ast.Ident).IsExported)
}

// namesOf returns the names that a declaration declares: of a method, the type.
func namesOf(decl ast.Decl) (names []string) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			return []string{decl.Name.Name}
		}
		ast.Inspect(decl.Recv.List[0].Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && names == nil { // type parameters follow it
				names = []string{id.Name}
			}
			return true
		})
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// keep keeps the declarations of some names, and of the names that these use.
func (s *source) keep(names []string) {
	for _, name := range names {
		for _, decl := range s.declared[name] {
			if !s.kept[decl] {
				s.kept[decl] = true
				s.keepUsed(decl, s.files[decl])
			}
		}
	}
}

// keepUsed keeps what a part of a declaration uses. imports are those of its file.
func (s *source) keepUsed(part ast.Node, imports map[string]string) {
	ast.Inspect(part, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && imports[x.Name] != "" {
				s.imports[x.Name] = imports[x.Name]
				s.used[strings.TrimPrefix(imports[x.Name], module+"/")+"/"+n.Sel.Name] = true
				return false
			}
			s.keepUsed(n.X, imports)
			return false
		case *ast.FuncDecl: // without its name
			s.keepUsed(n.Type, imports)
			return false
		case *ast.Field: // without its names
			s.keepUsed(n.Type, imports)
			return false
		case *ast.Ident:
			s.keep([]string{n.Name})
		}
		return true
	})
}

// aliased returns the folders of the internal packages that a package has aliases of.
func (s *source) aliased() (dirs []string) {
	for decl := range s.kept {
		group, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			if alias, ok := spec.(*ast.TypeSpec); ok && alias.Assign.IsValid() {
				if target, ok := alias.Type.(*ast.SelectorExpr); ok {
					if from := s.files[decl][target.X.(*ast.Ident).Name]; internal(from) && strings.HasPrefix(from, module+"/") {
						dirs = append(dirs, strings.TrimPrefix(from, module+"/"))
					}
				}
			}
		}
	}
	return dirs
}

// print adds the kept declarations as a file.
func (s *source) print(all *txtar.Archive) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "package %s\n\n", s.name)
	for _, name := range slices.Sorted(maps.Keys(s.imports)) {
		fmt.Fprintf(&b, "import %s %q\n", name, s.imports[name])
	}
	for _, decl := range s.decls {
		if !s.kept[decl] {
			continue
		}
		if _, group := decl.(*ast.GenDecl); group {
			b.WriteString("\n")
		}
		if err := printer.Fprint(&b, token.NewFileSet(), decl); err != nil {
			return err
		}
		b.WriteString("\n")
	}
	text, err := format.Source(b.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", s.dir, err)
	}
	all.Files = append(all.Files, txtar.File{Name: s.dir + "/api.go", Data: text})
	return nil
}

// importsOf returns the imported packages of a file by the names that it has for them.
func importsOf(f *ast.File) map[string]string {
	all := map[string]string{}
	for _, spec := range f.Imports {
		from := strings.Trim(spec.Path.Value, `"`)
		name := nameOf(from)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		all[name] = from
	}
	return all
}

// nameOf returns the usual name of a package: that of k8s.io/api/core/v1 is v1, and those of
// example.com/yaml.v3 and example.com/yaml/v3 are yaml.
func nameOf(from string) string {
	name := path.Base(from)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" && !strings.HasPrefix(from, "k8s.io/") {
		name = path.Base(path.Dir(from))
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}
