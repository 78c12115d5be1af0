package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const passing = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestQuick"}
{"Action":"output","Package":"a","Test":"TestQuick","Output":"quiet\n"}
{"Action":"pass","Package":"a","Test":"TestQuick","Elapsed":0.5}
{"Action":"output","Package":"a","Test":"TestSlow/one","Output":"one\n"}
{"Action":"pass","Package":"a","Test":"TestSlow/one","Elapsed":2}
{"Action":"pass","Package":"a","Test":"TestSlow","Elapsed":3}
{"Action":"pass","Package":"a","Elapsed":3.75}
`

const failing = `{"Action":"output","Package":"b","Test":"TestBad/two","Output":"two is wrong\n"}
{"Action":"fail","Package":"b","Test":"TestBad/two","Elapsed":1}
{"Action":"output","Package":"b","Test":"TestBad","Output":"--- FAIL\n"}
{"Action":"fail","Package":"b","Test":"TestBad","Elapsed":1}
{"Action":"fail","Package":"b","Elapsed":1.5}
{"Action":"build-output","ImportPath":"c","Output":"c.go:1: undefined\n"}
{"Action":"build-fail","ImportPath":"c"}
`

const graph = `[{"Mode":"link","Package":"a.test","TimeStart":"2026-01-01T00:00:00Z","TimeDone":"2026-01-01T00:00:02Z"},
{"Mode":"build","Package":"a","TimeStart":"2026-01-01T00:00:00Z","TimeDone":"2026-01-01T00:00:01Z"},
{"Mode":"link","Package":"b.test","TimeStart":"0001-01-01T00:00:00Z"}]`

func TestTables(t *testing.T) {
	actions := filepath.Join(t.TempDir(), "actions.json")
	if err := os.WriteFile(actions, []byte(graph), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in, actions string
		most        int
		failed      bool
		want        string
	}{
		{passing, "", 1, false, `
packages: 1, 3.8 s in all
  3.8 s  a

tests: 2, 3.5 s in all
  3.0 s  a TestSlow
`},
		{failing, actions, 9, true, `two is wrong
--- FAIL
c.go:1: undefined

packages: 1, 1.5 s in all
  1.5 s  b

tests: 1, 1.0 s in all
  1.0 s  b TestBad

linking: 1, 2.0 s in all
  2.0 s  a
`},
	} {
		var out strings.Builder
		failed, err := run(&out, strings.NewReader(c.in), c.actions, c.most)
		if err != nil || failed != c.failed || out.String() != c.want {
			t.Errorf("failed %v, %v:\n%s\nwant:\n%s", failed, err, out.String(), c.want)
		}
	}
}

// TestMistakes shows that input in another form is an error.
func TestMistakes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"ok  \ta\t1s\n", ""}, {passing, bad}, {passing, bad + ".missing"}} {
		if _, err := run(&strings.Builder{}, strings.NewReader(c[0]), c[1], 1); err == nil {
			t.Errorf("%q with the action graph %q is no mistake", c[0], c[1])
		}
	}
}
