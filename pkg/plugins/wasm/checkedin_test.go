package wasm_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
)

// sdkSources are the files that go into every module of a language, by the extension of its source.
func sdkSources() map[string]string {
	return map[string]string{".rs": "sdk/rust/src/*.rs", ".c": "sdk/c/*.h", ".ts": "sdk/assemblyscript/assembly/*.ts"}
}

// TestCheckedIn: a module that stands in the repository is made of the sources that stand beside it, without building it.
func TestCheckedIn(t *testing.T) {
	for _, e := range examples() {
		if _, err := os.Stat(root + e.source + "/go.mod"); err == nil {
			continue
		}
		t.Run(e.source, func(t *testing.T) {
			module := e.source + "/" + e.name + ".wasm"
			sums := readSums(t, module+".sum")
			for file, want := range sums {
				text, err := os.ReadFile(root + file)
				if err != nil {
					t.Fatal(err)
				}
				if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
					t.Errorf("%s is not the file that %s was made of: make plugins-checked-in", file, module)
				}
			}
			for _, file := range append(sources(t, e), module) {
				if sums[file] == "" {
					t.Errorf("%s.sum does not name %s: make plugins-checked-in", module, file)
				}
			}
		})
	}
}

// sources returns what a module is made of.
func sources(t *testing.T, e example) []string {
	t.Helper()
	for ext, sdk := range sdkSources() {
		source := e.source + "/" + e.name + ext
		if _, err := os.Stat(root + source); err != nil {
			continue
		}
		files, err := filepath.Glob(root + sdk)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s (%v)", sdk, err)
		}
		for i, file := range files {
			files[i] = filepath.ToSlash(strings.TrimPrefix(file, filepath.FromSlash(root)))
		}
		return append(files, source)
	}
	t.Fatalf("%s has no source", e.source)
	return nil
}

func readSums(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(root + file)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && !strings.HasPrefix(line, "#") {
			sums[name] = sum
		}
	}
	return sums
}

// TestImports: an SDK imports what its handler uses, and no more: an import that was not granted fails at the start of the router.
func TestImports(t *testing.T) {
	for _, e := range examples() {
		t.Run(e.source, func(t *testing.T) {
			module, err := os.ReadFile(e.module(t))
			if err != nil {
				t.Fatal(err)
			}
			r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
			defer func() {
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			compiled, err := r.CompileModule(t.Context(), module)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"rtr_v1.log"}
			if e.name == "calls" {
				want = append(want, "rtr_v1.kv_get", "rtr_v1.kv_set", "rtr_v1.kv_del", "rtr_v1.lookup", "rtr_v1.emit", "rtr_v1.http", "rtr_v1.random", "rtr_v1.now_ns")
			}
			for _, f := range compiled.ImportedFunctions() {
				from, name, _ := f.Import()
				if from != "wasi_snapshot_preview1" && !slices.Contains(want, from+"."+name) {
					t.Errorf("it imports %s.%s", from, name)
				}
			}
		})
	}
}
