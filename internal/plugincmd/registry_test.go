package plugincmd_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/plugincmd"
	"github.com/deltarouter/deltarouter/test/must"
)

// registry keeps what is pushed to it.
func registry(t *testing.T) string {
	t.Helper()
	var mu sync.Mutex
	content, types := map[string][]byte{}, map[string]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		path := strings.Replace(r.URL.Path, "/uploads/one", "/"+r.URL.Query().Get("digest"), 1)
		switch r.Method {
		case http.MethodPost:
			w.Header().Set("Location", r.URL.Path+"one")
			w.WriteHeader(http.StatusAccepted)
		case http.MethodPut:
			content[path], types[path] = body, r.Header.Get("Content-Type")
			w.WriteHeader(http.StatusCreated)
		default:
			if content[path] == nil {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", types[path])
			_, _ = w.Write(content[path])
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func run(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	none := compile.Components{}
	p := cli.Program{Command: cli.Command{Name: "plugin", Commands: plugincmd.Commands(none)}}
	code = p.Main(t.Context(), cli.Streams{In: strings.NewReader(""), Out: &b, Err: &b, Raw: &b}, args)
	return code, b.String()
}

// module is a module with an import, a memory, an export and a custom section.
const module = "\x00asm\x01\x00\x00\x00" +
	"\x01\x04\x01\x60\x00\x00" + // a type
	"\x02\x11\x01\x06rtr_v1\x06kv_get\x00\x00" +
	"\x05\x04\x01\x01\x02\x10" +
	"\x07\x0e\x01\x0artr_handle\x00\x00" +
	"\x00\x05\x04note" +
	"\x00\x20\x12deltarouter.fieldsstatus.phase\n"

// TestRegistry: a module that was pushed is pulled and inspected by the printed reference.
func TestRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, at := t.TempDir(), "oci://"+registry(t)+"/team/dns:1"
	file := filepath.Join(dir, "dns.wasm")
	must.Succeed(t, os.WriteFile(file, []byte(module), 0o600))
	code, ref := run(t, "push", "-annotation", "org.opencontainers.image.version=1.2", file, at)
	ref = strings.TrimSpace(ref)
	if code != 0 || !strings.HasPrefix(ref, at+"@sha256:") {
		t.Fatalf("push: %d, %s", code, ref)
	}
	pulled := filepath.Join(dir, "pulled.wasm")
	if code, out := run(t, "pull", "-o", pulled, at); code != 0 || strings.TrimSpace(out) != ref {
		t.Errorf("pull: %d, %s, want %s", code, out, ref)
	}
	if got, err := os.ReadFile(pulled); err != nil || string(got) != module {
		t.Errorf("the pulled module is %q, %v", got, err)
	}
	if code, out := run(t, "pull", "-o", pulled, at); code == 0 {
		t.Errorf("pull replaces a file: %s", out)
	}
	code, out := run(t, "inspect", ref)
	for _, want := range []string{
		"kind       wasm", "allow      kv: true", "imports    rtr_v1.kv_get", "memory     128.0 KiB, at most 1.0 MiB", "section    note", "fields     status.phase", "note       org.opencontainers.image.version: 1.2",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("inspect: %d, %s\nwant %s", code, out, want)
		}
	}
	key := filepath.Join(dir, "cosign.pub")
	must.Succeed(t, os.WriteFile(key, []byte("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n"), 0o600))
	if code, out := run(t, "verify", "-key", key, ref); code == 0 || !strings.Contains(out, "it is not signed") {
		t.Errorf("verify: %d, %s", code, out)
	}
}

// TestInspectMistakes: other files are rejected with the reason.
func TestInspectMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"text":                    "no WebAssembly module",
		module[:len(module)-3]:    "damaged",
		"\x00asm\x0d\x00\x01\x00": "wasm32-wasip1",
		"\x00asm\x01\x00\x00\x00\x02\x05\xff\xff\xff\xff\x0f": "damaged",
	} {
		file := filepath.Join(t.TempDir(), "a.wasm")
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		if code, out := run(t, "inspect", file); code != cli.CodeUsage || !strings.Contains(out, want) {
			t.Errorf("%q: %d, %s", text, code, out)
		}
	}
}
