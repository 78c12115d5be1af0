package sdk

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestGoCopy: go.txtar has the files of the folder go, without its tests. `go generate` in this folder
// writes it.
func TestGoCopy(t *testing.T) {
	archive := txtar.Archive{Comment: []byte("The Go SDK, a copy of sdk/go made by `go generate ./sdk`.\n")}
	must.Succeed(t, filepath.WalkDir("go", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel("go", path)
		archive.Files = append(archive.Files, txtar.File{Name: filepath.ToSlash(name), Data: text})
		return err
	}))
	want := txtar.Format(&archive)
	if slices.Contains(flag.Args(), "update") {
		must.Succeed(t, os.WriteFile("go.txtar", want, 0o600))
	}
	got, err := os.ReadFile("go.txtar")
	must.Succeed(t, err)
	if !bytes.Equal(got, want) {
		t.Error("go.txtar differs from the folder go: run go generate ./sdk")
	}
	parsed := txtar.Parse(got)
	for i, f := range parsed.Files {
		if i >= len(archive.Files) || f.Name != archive.Files[i].Name || !bytes.Equal(f.Data, archive.Files[i].Data) {
			t.Errorf("%s differs after it is taken out of go.txtar", f.Name)
		}
	}
}
