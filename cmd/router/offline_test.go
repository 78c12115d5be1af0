package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// TestOffline runs the commands of each archive. Its comment describes it. Each file named run* has
// a command line, one argument per line. The following file out has the expected exit code,
// standard output and, behind ---, standard error.
func TestOffline(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		name, err := filepath.Abs(file)
		must.Succeed(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, name) })
	}
}

func golden(t *testing.T, file string) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	must.Succeed(t, err)
	t.Chdir(t.TempDir())
	var kept []txtar.File
	for i, f := range archive.Files {
		if f.Name == "out" {
			continue
		}
		if kept = append(kept, f); f.Name != "run" {
			must.Succeed(t, os.WriteFile(f.Name, f.Data, 0o600))
			continue
		}
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n"), &stdout, &stderr)
		got := fmt.Sprintf("%d\n%s", code, &stdout)
		if stderr.Len() > 0 {
			got += "---\n" + stderr.String()
		}
		kept = append(kept, txtar.File{Name: "out", Data: []byte(got)})
		if !*update && (i+1 == len(archive.Files) || string(archive.Files[i+1].Data) != got) {
			t.Errorf("%q:\n%s", f.Data, got)
		}
	}
	if archive.Files = kept; *update {
		must.Succeed(t, os.WriteFile(file, txtar.Format(archive), 0o644))
	}
}
