package wasm_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/meter"
	conf "github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/must"
)

// sdkSources are the SDK files in every module of a language, by the extension of its source.
func sdkSources() map[string]string {
	return map[string]string{".rs": "sdk/rust/src/*.rs", ".c": "sdk/c/*.h", ".ts": "sdk/assemblyscript/assembly/*.ts"}
}

// TestCheckedIn: a checked-in module was built from the sources beside it. The test does not build
// it.
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
				must.Succeed(t, err)
				if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
					t.Errorf("%s is not the file that %s was made of: sh tools/guests.sh checked-in", file, module)
				}
			}
			for _, file := range append(sources(t, e), module) {
				if sums[file] == "" {
					t.Errorf("%s.sum does not name %s: sh tools/guests.sh checked-in", module, file)
				}
			}
		})
	}
}

// sources returns the sources of a module.
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
	must.Succeed(t, err)
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && !strings.HasPrefix(line, "#") {
			sums[name] = sum
		}
	}
	return sums
}

// TestImports: a module imports only the functions of the SDK that its handler uses, because an
// import without a grant fails at the start of the router.
func TestImports(t *testing.T) {
	for _, e := range examples() {
		t.Run(e.source, func(t *testing.T) {
			text, err := os.ReadFile(e.module(t))
			must.Succeed(t, err)
			module, err := meter.Rewrite(text, meter.Config{Init: 1, Slice: 1000})
			must.Succeed(t, err)
			want := []string{"rtr_v1.log"}
			if slices.Contains([]string{"summary", "calls", "phase"}, e.name) {
				want = append(want, "rtr_v1.field")
			}
			if e.name == "calls" {
				want = append(want, "rtr_v1.kv_get", "rtr_v1.kv_set", "rtr_v1.kv_del", "rtr_v1.lookup", "rtr_v1.emit", "rtr_v1.http", "rtr_v1.random", "rtr_v1.now_ns")
			}
			for _, i := range module.Imports {
				if i.Module != "wasi_snapshot_preview1" && !slices.Contains(want, i.Module+"."+i.Name) {
					t.Errorf("it imports %s.%s", i.Module, i.Name)
				}
			}
		})
	}
}

// TestDigest: a module with a SHA-256 is loaded only with that content, and the log names the
// digest.
func TestDigest(t *testing.T) {
	// Guarantee: module-digest
	path := guest(onDeleted(opUnreachable)).write(t)
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	digest := fmt.Sprintf("%x", sha256.Sum256(text))
	for name, pin := range map[string]string{"not pinned": "", "pinned": ", sha256: " + digest, "in capitals": ", sha256: " + strings.ToUpper(digest)} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			handler := h.open(t, fmt.Sprintf("{module: %q%s}", path, pin))
			if got := handler.(plugins.Pinned).Digest(); got != digest {
				t.Errorf("got %s, want %s", got, digest)
			}
			if want := `msg="module loaded" module=` + path + " sha256=" + digest; !strings.Contains(h.log.String(), want) {
				t.Errorf("the log lacks %s: %s", want, h.log)
			}
		})
	}
	t.Run("another", func(t *testing.T) {
		h := newHost()
		_, err := h.tryOpen(t, fmt.Sprintf("{module: %q, sha256: %064d}", path, 1))
		if want := fmt.Sprintf("module %s: its content differs from sha256: its SHA-256 is %s", path, digest); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		checkGone(t, h)
	})
}

// TestDigestIsRequired: with -require-digests a module without a SHA-256 is not loaded.
func TestDigestIsRequired(t *testing.T) {
	// Guarantee: module-digest
	for _, tt := range []struct {
		required   bool
		yaml, want string
	}{
		{false, "{module: a.wasm}", ""},
		{false, "{module: a.wasm, sha256: abc}", "2:34: handlers.h.wasm.sha256: must be 64 hexadecimal digits, as sha256sum prints them"},
		{true, "{module: a.wasm}", "2:9: handlers.h.wasm: sha256 is missing: the router was started with -require-digests; write what sha256sum prints for the module"},
		{true, fmt.Sprintf("{module: a.wasm, sha256: %064d}", 1), ""},
		{true, "{module: a.wasm, sha256: ''}", "2:9: handlers.h.wasm: sha256 is missing"},
	} {
		text := "handlers: {h: {wasm: \n        " + tt.yaml + "}}\nversion: 1\nsources: {pods: {resource: v1/pods}}\nsinks: {out: {stdout: {}}}\nroutes: [{name: r, from: pods, handler: h, to: out}]\n"
		cfg, problems := conf.Parse("config.yaml", []byte(text), conf.Policy{RequireDigests: tt.required})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		got := wasm.Kind().Check(cfg.Handlers["h"].Config).Error()
		if (got == "") != (tt.want == "") || !strings.HasPrefix(strings.TrimPrefix(got, "config.yaml:"), tt.want) {
			t.Errorf("%s: got %q, want %q", tt.yaml, got, tt.want)
		}
	}
}
