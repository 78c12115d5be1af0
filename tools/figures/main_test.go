package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestFigures shows for each figure which code changes it.
func TestFigures(t *testing.T) {
	const body = "package p\n\nfunc f() {\n%s}\n"
	in := func(lines string) string { return strings.Replace(body, "%s", lines, 1) }
	long := strings.Repeat("\tg()\n", 24)
	for _, c := range []struct {
		name   string
		of     func(tree) (string, []string)
		files  map[string]string
		want   string
		places string // joined
	}{
		{"packages", packages, map[string]string{
			"pkg/a/a.go": "package a", "pkg/a/b.go": "package a", "internal/b/b.go": "package b",
			"internal/c/c_test.go": "package c", "internal/d/testdata/d.go": "package d", "test/e/e.go": "package e",
		}, "2", ""},
		{"imports", imports, map[string]string{
			"pkg/a/a.go":      "package a\nimport (\n_ \"" + module + "/internal/b\"\n_ \"" + module + "/internal/c\"\n_ \"fmt\"\n)",
			"pkg/a/more.go":   "package a\nimport _ \"" + module + "/internal/b\"",
			"internal/b/b.go": "package b\nimport _ \"" + module + "/internal/c\"",
			"internal/c/c.go": "package c",
		}, "3, 3", " 1 pkg/a  2 internal/b  3 internal/c"},
		{"exported", exported, map[string]string{"pkg/a/a.go": "package a\ntype T int\ntype t int\nfunc F() {}\nfunc f() {}\nfunc (t) M() {}\nfunc (T) m() {}\nvar V = 1\n"}, "2, 1", ""},
		{"wholes", wholes, map[string]string{
			"pkg/a/a.go": "package a\ntype whole struct { mu sync.Mutex }\ntype free struct { n int }\ntype part struct { *whole }\ntype named struct { w *whole }\ntype other struct { *free }\ntype foreign struct { *b.whole }\n",
			"pkg/b/b.go": "package b\ntype part struct { *whole }\n",
		}, "1", "pkg/a/a.go:4 part embeds *whole"},
		{"a lock that is embedded", wholes, map[string]string{"pkg/a/a.go": "package a\ntype whole struct { sync.RWMutex }\ntype part struct { *whole }\n"}, "1", "pkg/a/a.go:3 part embeds *whole"},
		{"reaches", reaches, map[string]string{
			"internal/pipeline/a/a.go": "package a\nimport \"x/b\"\nfunc f() {\n\tr.A.B.C()\n\tr.A.B.C.D = 1\n\tr.a.B.C()\n\tb.A.B.C()\n\tr.A().B.C()\n\tg(r.x.A.B.C).D.E()\n}\n",
			"internal/kv/a.go":         "package a\nfunc f() { r.A.B.C() }\n",
		}, "3", "internal/pipeline/a/a.go:4 A.B.C internal/pipeline/a/a.go:5 A.B.C.D internal/pipeline/a/a.go:9 x.A.B.C"},
		{"function fields", functionFields, map[string]string{"pkg/a/a.go": "package a\ntype t struct {\n\ta, b func()\n\tc F\n\td []func()\n\te struct{ f func() int }\n}\n"}, "3", "pkg/a/a.go:3 a pkg/a/a.go:3 b pkg/a/a.go:6 f"},
		{"comments", comments, map[string]string{"pkg/a/a.go": in("\t// one\n\t// two\n\tg() // three\n\t//nolint:x // why\n\tg()\n\tg()\n\tg()\n\tg()\n")}, "30.0", ""},
		{"no code", comments, nil, "0.0", ""},
		{"tagless", tagless, map[string]string{"pkg/a/a.go": in("\tswitch {\n\tcase a:\n\t}\n\tswitch x {\n\t}\n\tswitch x := y.(type) {\n\t}\n")}, "90.9", "pkg/a/a.go:4"},
		{"silent", silent, map[string]string{
			"internal/router/a.go":     in(long),
			"internal/router/short.go": in(long[5:]),
			"internal/fleet/x/said.go": in("\t// why\n" + long),
			"internal/cases/a.go":      in(long),
		}, "1", "internal/router/a.go:3 f, 26 lines"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, places := c.of(parsed(t, c.files))
			if joined := strings.Join(places, " "); got != c.want || joined != c.places {
				t.Errorf("got %s, %q, want %s, %q", got, joined, c.want, c.places)
			}
		})
	}
}

func parsed(t *testing.T, files map[string]string) tree {
	t.Helper()
	read, err := read(repository(files))
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// repository has the files, and the folders that are read.
func repository(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{"cmd/README": {}, "internal/README": {}, "pkg/README": {}}
	for name, src := range files {
		all[name] = &fstest.MapFile{Data: []byte(src)}
	}
	return all
}

// TestRun shows the form of the output.
func TestRun(t *testing.T) {
	var short, long strings.Builder
	files := repository(map[string]string{"pkg/a/a.go": "package a\ntype t struct{ f func() }\n"})
	if err := run(&short, files, false); err != nil {
		t.Fatal(err)
	}
	if err := run(&long, files, true); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(short.String(), "\n"); len(lines) != len(figures)+1 || !strings.HasPrefix(lines[0], "a  packages  ") || !strings.HasSuffix(lines[0], " 1") {
		t.Errorf("got:\n%s", short.String())
	}
	if !strings.Contains(long.String(), "pkg/a/a.go:2 f") {
		t.Errorf("with the places:\n%s", long.String())
	}
	if err := run(&short, repository(map[string]string{"pkg/a/a.go": "package"}), false); err == nil {
		t.Error("a mistake in the code is no mistake")
	}
}
