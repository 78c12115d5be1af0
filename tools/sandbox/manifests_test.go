package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadFolderOrder(t *testing.T) {
	folder := t.TempDir()
	files := map[string]string{
		"a.yaml": `# nothing
---
{apiVersion: example.com/v1, kind: Thing, metadata: {name: instance}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: space}}
`,
		"b.yml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
`,
		"c.json":   `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "item"}}]}`,
		"notes.md": "not a manifest",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objs, err := readFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, obj := range objs {
		got = append(got, obj.GetName())
	}
	if want := []string{"things.example.com", "space", "instance", "item"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReadManifestsErrors(t *testing.T) {
	for text, want := range map[string]string{
		"kind: Pod":                            "document 1: apiVersion and kind are required",
		"{apiVersion: v1, kind: A}\n---\na: [": "document 2: ",
	} {
		_, err := readManifests(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one with %q", text, err, want)
		}
	}
}
