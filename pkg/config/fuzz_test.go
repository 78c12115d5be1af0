package config_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// FuzzParse: Parse returns for any text. Its problems have positions inside the file, and a
// configuration without problems is usable.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	must.Succeed(f, err)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		must.Succeed(f, err)
		f.Add(archive.Files[0].Data)
	}
	f.Add([]byte("---")) // the end is in a line that does not exist
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, problems := config.Parse("config.yaml", data, config.Policy{})
		lines := 1
		for _, b := range data {
			if b == '\n' {
				lines++
			}
		}
		for _, p := range problems {
			if p.File != "config.yaml" || p.Message == "" || p.Line < 0 || p.Line > lines {
				t.Errorf("%+v", p)
			}
		}
		if len(problems) > 0 {
			return
		}
		if len(cfg.Sources) == 0 || len(cfg.Sinks) == 0 || len(cfg.Routes) == 0 {
			t.Errorf("accepted without sources, sinks or routes")
		}
		for _, r := range cfg.Routes {
			for _, e := range append(r.Filter.Each(), r.Emit, r.Key) {
				if e != nil {
					checkPlaces(t, string(data), *e)
				}
			}
		}
		for _, c := range cfg.Sinks {
			if text, err := c.Config.JSON(); err == nil && !json.Valid(text) {
				t.Errorf("not JSON: %s", text)
			}
		}
	})
}

// FuzzExprPlaces: for any scalar, the reported position of a character is its own or that of the
// whole scalar.
func FuzzExprPlaces(f *testing.F) {
	for _, scalar := range []string{
		"a.b", "'a ''b'''", `"\u00fc \"b\""`, "|\n  a\n  b", ">-\n  a\n  b\n\n    c", "|1+\n  a", "&a !!str\n  b", "a\n  b\n\n  c", `"a\` + "\n  b\"",
	} {
		f.Add(scalar)
	}
	f.Fuzz(func(t *testing.T, scalar string) {
		source := "k: " + scalar
		root, problems := config.ParseNode("config.yaml", []byte(source))
		if len(problems) > 0 {
			return
		}
		var e config.Expr
		if len(root.At("k").Decode(&e)) == 0 {
			checkPlaces(t, source, e)
		}
	})
}

// FuzzJSON: the result is valid JSON or a problem.
func FuzzJSON(f *testing.F) {
	for _, yaml := range []string{"a: [1, 0x1F, .5, 1_000, 0o17, -.inf, 1e3, +1, 2001-01-01, ~, yes, 'x']", "<<: {a: 1}", "${A:-1}", "\"\\u0000\\ud7ff\""} {
		f.Add(yaml)
	}
	f.Fuzz(func(t *testing.T, yaml string) {
		root, problems := config.ParseNode("config.yaml", []byte(yaml))
		if len(problems) > 0 {
			return
		}
		if text, err := root.JSON(); err == nil && !json.Valid(text) {
			t.Errorf("not JSON: %s", text)
		}
	})
}
