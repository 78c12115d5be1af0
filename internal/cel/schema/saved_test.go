package schema_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestSaved(t *testing.T) {
	set, err := schema.Builtin()
	must.Succeed(t, err)
	dir := filepath.Join(t.TempDir(), "deep", "schemas")
	path, err := schema.Save(dir, set)
	must.Succeed(t, err)
	first, err := os.ReadFile(path)
	must.Succeed(t, err)
	loaded, err := schema.Load(dir)
	must.Succeed(t, err)
	want, _ := json.Marshal(set)
	if got, err := json.Marshal(loaded); err != nil || !bytes.Equal(got, want) {
		t.Error("what is loaded is not what was saved", err)
	}
	if _, err := schema.Save(dir, loaded); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, first) {
		t.Error("equal sets make different files", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Error("other files are left", left, err)
	}
}

// TestSaveKeepsTheOldFile shows that a failed Save leaves the old file unchanged.
func TestSaveKeepsTheOldFile(t *testing.T) {
	set, err := schema.Builtin()
	must.Succeed(t, err)
	dir := t.TempDir()
	// A folder cannot be replaced by a file.
	must.Succeed(t, os.MkdirAll(filepath.Join(dir, "schemas.json", "in the way"), 0o700))
	if _, err := schema.Save(dir, set); err == nil {
		t.Error("it was written")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Error("a piece is left", left, err)
	}
	file := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	if _, err := schema.Save(file, set); err == nil {
		t.Error("a file is taken for a folder")
	}
}

func TestLoadErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing there", "", "router schema pull -o "},
		{"no JSON", "{", "schemas.json: schemas: "},
		{"another file", `{"openapi": "3.0.0"}`, "there is no resource in it"},
		{"a word that is none", `{"types": {"a": {"b": "strin"}}}`, "a.b: not the word for a type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.text != "" {
				must.Succeed(t, os.WriteFile(filepath.Join(dir, "schemas.json"), []byte(c.text), 0o600))
			}
			_, err := schema.Load(dir)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "router schema pull -o "+dir) {
				t.Error(err)
			}
		})
	}
}
