package main

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"
)

// inside is an internal package.
const inside = `package in

import "iter"

type T struct{ A, B int }
type Hidden struct{ C int }

func (T) M() iter.Seq[T] { return nil }
`

// archive returns the declarations of a repository with a package below pkg.
func archive(t *testing.T, public, inside string) *txtar.Archive {
	t.Helper()
	head := "package p\n\nimport (\n\t\"net/http\"\n\n\t\"" + module + "/internal/in\"\n)\n\n"
	all, err := read(fstest.MapFS{
		"pkg/p/p.go":         {Data: []byte(head + public)},
		"pkg/p/p_test.go":    {Data: []byte("package p\n\ntype OfTest int\n")},
		"internal/in/in.go":  {Data: []byte(inside)},
		"pkg/internal/x.go":  {Data: []byte("package internal\n\ntype X int\n")},
		"pkg/p/testdata/a.c": {Data: []byte("no Go")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCompare shows which changes are incompatible, and under which names they are reported.
func TestCompare(t *testing.T) {
	const before = `
type Alias = in.T

// S has a field that other programs cannot use.
type S struct {
	A *http.Client // a client
	b int
}

func (s *S) M(n int) error { return nil }

type G[P any] struct{ V P }

func (G[P]) M() P { panic("") }

type I interface{ Do() }

const (
	first = iota
	Second
)

var V = first

func F(of small) {}

type small struct{ A int }

func unused(in.Hidden) {}
`
	for _, c := range []struct{ name, old, new, want string }{
		{"the body of a function", "return nil", "return http.ErrServerClosed", ""},
		{"a comment and a private field", "b int", "b, c int", ""},
		{"a new function", "func unused", "func Used() {}\nfunc unused", ""},
		{"a new field", "b int", "b int\n\tC bool", ""},
		{"a private function", "func unused(in.Hidden) {}", "", ""},
		{"a removed method", "func (s *S) M(n int) error { return nil }", "", "p.S.M: removed"},
		{"a parameter", "M(n int)", "M(n string)", "p.S.M: changed from func(int) error to func(string) error"},
		{"a field", "A *http.Client", "A *http.Server", "p.S.A: changed from *net/http.Client to *net/http.Server"},
		{"a method of an interface", "Do()", "Do(); Undo()", "p.I.Undo: added"},
		{"a method of a generic type", "func (G[P]) M() P", "func (G[P]) M() int", "p.G.M: changed from func() P to func() int"},
		{"the value of a constant", "iota", "iota + 1", "p.Second: value changed from 1 to 2"},
		{"a field of a private type that is used", "type small struct{ A int }", "type small struct{}", "p.small.A: removed"},
		{"the type behind an alias", "in.T", "in.Hidden", "p.Alias: changed from " + module + "/internal/in.T to " + module + "/internal/in.Hidden"},
		{"a field behind an alias", "A, B int }", "A int }", "p.Alias.B: removed"},
		{"a method behind an alias", "M() iter.Seq[T]", "M(int) iter.Seq[T]", "p.Alias.M: changed from func() iter.Seq[T] to func(int) iter.Seq[T]"},
		{"what is not behind an alias", "C int", "D int", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, nowInside := strings.Replace(before, c.old, c.new, 1), strings.Replace(inside, c.old, c.new, 1)
			if now == before && nowInside == inside {
				t.Fatal("nothing was replaced")
			}
			var got []string
			for _, change := range compare(check(archive(t, before, inside)), check(archive(t, now, nowInside))) {
				got = append(got, change.name+": "+change.what)
			}
			if is := strings.Join(got, "; "); is != c.want {
				t.Errorf("got  %s\nwant %s", is, c.want)
			}
		})
	}
	gone := compare(check(archive(t, before, inside)), check(&txtar.Archive{}))
	if len(gone) != 1 || gone[0] != (change{"p", "the package is removed"}) {
		t.Errorf("a removed package: %v", gone)
	}
}

// TestRead shows that only what other programs can use is recorded, and that the text can be
// parsed.
func TestRead(t *testing.T) {
	all := archive(t, "type Alias = in.T\n\ntype s struct{ A http.Client }\n\nfunc F() s { return s{} }\n\nfunc g() in.Hidden { panic(0) }\n", inside)
	text := string(txtar.Format(all))
	for _, want := range []string{"-- pkg/p/api.go --\n", "-- internal/in/api.go --\n", "func F() s\n", "type s struct{ A http.Client }\n", "func (T) M() iter.Seq[T]\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q", want)
		}
	}
	for _, unwanted := range []string{"OfTest", "Hidden", "func g", "pkg/internal", "return"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("there is %q", unwanted)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if _, err := read(fstest.MapFS{"go.mod": {}}); err == nil {
		t.Error("a repository without packages is accepted")
	}
}

// TestReport shows that a change is permitted if the changelog names it, or its type, in the
// section of unreleased changes.
func TestReport(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- `p.S.M` returns an error.\n- `p.G` is gone.\n\n## 0.1.0 - 2026-12-01\n\n- `p.F`\n"
	for name, permitted := range map[string]bool{"p.S.M": true, "p.S.A": false, "p.G": true, "p.G.M": true, "p.F": false, "q": false} {
		var out strings.Builder
		err := report(&out, []change{{name, "removed"}}, unreleased(changelog))
		if permitted != (err == nil) || permitted != (out.Len() == 0) {
			t.Errorf("%s: %v, %s", name, err, out.String())
		}
	}
}

// TestRepository shows that the packages of this repository are found, and that the comparison
// finds names that are removed from them.
func TestRepository(t *testing.T) {
	all, err := read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(txtar.Format(all)), "func (k Key) String() string\n", "", 1)
	changes := compare(check(all), check(txtar.Parse([]byte(text))))
	if len(all.Files) < 20 || len(changes) != 1 || changes[0].name != "event.Key.String" {
		t.Errorf("%d packages, and without Key.String %v", len(all.Files), changes)
	}
}
