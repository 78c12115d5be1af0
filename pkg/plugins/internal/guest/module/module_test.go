package module_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/module"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// section is the configuration of a kind.
type section struct {
	Source module.Source `yaml:",inline"`
}

// Validate implements config.Validator.
func (s *section) Validate(n config.Node) config.Problems { return s.Source.Validate(n) }

func source(t *testing.T, dir, text string) *module.Source {
	t.Helper()
	node, problems := config.ParseNode(filepath.Join(dir, "config.yaml"), []byte(text))
	must.Succeed(t, problems.Err())
	var s section
	must.Succeed(t, node.Decode(&s).Err())
	return &s.Source
}

// handler is an opened handler.
type handler struct {
	plugins.Handler

	digest string
}

func (h handler) Digest() string              { return h.digest }
func (h handler) Close(context.Context) error { return nil }
func (h handler) Handle(context.Context, []*event.Delta) ([]plugins.Result, error) {
	return []plugins.Result{{}}, nil
}

func open(_ context.Context, c module.Content) (plugins.Handler, error) {
	return handler{digest: c.Digest}, nil
}

func env(dir string) plugins.HandlerEnv {
	return plugins.HandlerEnv{Env: plugins.Env{Log: slog.New(slog.DiscardHandler)}, Modules: plugins.Modules{Dir: dir}}
}

// registry serves one artifact as the tag 1 while up is true.
type registry struct {
	*httptest.Server

	up               atomic.Bool
	refuses          atomic.Int64 // HTTP status of all answers; 0: none is refused
	digest, manifest string
}

const code = "\x00asm\x01\x00\x00\x00"

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func serve(t *testing.T) *registry {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	r := &registry{manifest: `{"schemaVersion":2,"layers":[{"mediaType":"application/wasm","digest":"sha256:` + digestOf(code) + `","size":8}]}`}
	r.digest = "sha256:" + digestOf(r.manifest)
	r.up.Store(true)
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch path := req.URL.Path; {
	case !r.up.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.refuses.Load() != 0:
		w.WriteHeader(int(r.refuses.Load()))
	case path == "/v2/team/dns/manifests/1", path == "/v2/team/dns/manifests/"+r.digest:
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		_, _ = w.Write([]byte(r.manifest))
	case path == "/v2/team/dns/blobs/sha256:"+digestOf(code):
		_, _ = w.Write([]byte(code))
	default:
		http.NotFound(w, req)
	}
}

func (r *registry) ref(suffix string) string {
	return "oci://" + r.Listener.Addr().String() + "/team/dns" + suffix
}

// TestRegistry: a module is pinned by its digest, by its SHA-256 or by the lock file. A tag alone
// is rejected, and the error has the digest.
func TestRegistry(t *testing.T) {
	// Guarantee: module-pinned
	r := serve(t)
	locked := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(locked, "plugins.lock"), []byte("modules:\n  - {ref: \""+r.ref(":1")+"\", digest: \""+r.digest+"\"}\n"), 0o600))
	damaged := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(damaged, "plugins.lock"), []byte("modules:\n  - {ref: oci://x/y, digest: z}\n"), 0o600))
	moved := t.TempDir() // the tag of the registry has another digest than the lock file
	other := "sha256:" + digestOf("other")
	must.Succeed(t, os.WriteFile(filepath.Join(moved, "plugins.lock"), []byte("modules: [{ref: \""+r.ref(":1")+"\", digest: \""+other+"\"}]"), 0o600))
	for name, c := range map[string]struct{ dir, text, want string }{
		"a digest":            {t.TempDir(), "module: " + r.ref("@"+r.digest), ""},
		"a tag and a digest":  {t.TempDir(), "module: " + r.ref(":2@"+r.digest), ""},
		"a SHA-256":           {t.TempDir(), "module: " + r.ref(":1") + "\nsha256: " + digestOf(code), ""},
		"another SHA-256":     {t.TempDir(), "module: " + r.ref("@"+r.digest) + "\nsha256: " + digestOf("other"), "differs from sha256: its SHA-256 is " + digestOf(code)},
		"a lock file":         {locked, "module: " + r.ref(":1"), ""},
		"a moved tag":         {moved, "module: " + r.ref(":1"), "the registry does not have it"},
		"another tag":         {locked, "module: " + r.ref(":2"), "has a tag and no digest"},
		"a damaged lock file": {damaged, "module: " + r.ref(":1"), "plugins.lock:2:11"},
		"a tag":               {t.TempDir(), "module: " + r.ref(":1"), "write " + r.ref(":1@"+r.digest)},
		"no signature":        {t.TempDir(), "module: " + r.ref(":1") + "\nverify: {key: missing.pub}", "missing.pub cannot be read"},
		"an unknown digest":   {t.TempDir(), "module: " + r.ref("@"+other), "the registry does not have it"},
	} {
		s := source(t, c.dir, c.text)
		h, err := s.Open(t.Context(), 1<<20, env(t.TempDir()), open)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), s.Module) {
				t.Errorf("%s: the error is %v, want %q", name, err, c.want)
			}
			continue
		}
		if err != nil || h.(plugins.Pinned).Digest() != digestOf(code) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRegistryIsDown: a module that was fetched once needs no registry. Otherwise an open fails,
// and at a start the handler waits for the registry.
func TestRegistryIsDown(t *testing.T) {
	// Guarantee: registry-down
	r := serve(t)
	dir := t.TempDir()
	s := source(t, dir, "module: "+r.ref("@"+r.digest))
	kept := env(t.TempDir())
	h, err := s.Open(t.Context(), 1<<20, kept, open)
	must.Succeed(t, err)
	must.Succeed(t, h.Close(t.Context()))

	r.up.Store(false)
	if _, err := s.Open(t.Context(), 1<<20, kept, open); err != nil {
		t.Errorf("a module that was fetched before: %v", err)
	}
	late := env(t.TempDir())
	if _, err := s.Open(t.Context(), 1<<20, late, open); err == nil || !strings.Contains(err.Error(), "not available: HTTP 503") {
		t.Errorf("a reload: %v", err)
	}
	late.Modules.Starting = true
	arrived := make(chan struct{})
	waiting, err := s.Open(t.Context(), 1<<20, late, func(ctx context.Context, c module.Content) (plugins.Handler, error) {
		defer close(arrived)
		return open(ctx, c)
	})
	must.Succeed(t, err)
	_, err = waiting.Handle(t.Context(), nil)
	if plugins.ClassOf(err) != plugins.Postponed || !strings.Contains(err.Error(), "HTTP 503") || waiting.(plugins.Pinned).Digest() != "" {
		t.Errorf("a delta meanwhile: %v", err)
	}
	r.up.Store(true)
	select {
	case <-arrived:
	case <-time.After(2 * time.Minute):
		t.Fatal("the module does not arrive")
	}
	for err != nil { // the handler is in use a moment later
		runtime.Gosched()
		_, err = waiting.Handle(t.Context(), nil)
	}
	if got := waiting.(plugins.Pinned).Digest(); got != digestOf(code) {
		t.Errorf("the digest is %s", got)
	}
	must.Succeed(t, waiting.Close(t.Context()))
}

// TestRegistryRefuses: a handler waits at a start until the registry gives the module to it. A
// reload fails, and a tag whose digest is known needs no credentials.
func TestRegistryRefuses(t *testing.T) {
	// Guarantee: registry-down
	r := serve(t)
	s := source(t, t.TempDir(), "module: "+r.ref(":1")+"\nsha256: "+digestOf(code))
	for status, want := range map[int]string{http.StatusUnauthorized: "refuses access (HTTP 401)", http.StatusForbidden: "(HTTP 403)", http.StatusNotFound: "does not have it"} {
		r.refuses.Store(int64(status))
		late := env(t.TempDir())
		if _, err := s.Open(t.Context(), 1<<20, late, open); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a reload: %v, want %s", err, want)
		}
		late.Modules.Starting = true
		waiting, err := s.Open(t.Context(), 1<<20, late, open)
		must.Succeed(t, err)
		if _, err = waiting.Handle(t.Context(), nil); plugins.ClassOf(err) != plugins.Postponed || !strings.Contains(err.Error(), want) {
			t.Errorf("a delta: %v, want %s", err, want)
		}
		must.Succeed(t, waiting.Close(t.Context()))
	}
	kept := env(t.TempDir())
	r.refuses.Store(0)
	for range 2 {
		h, err := s.Open(t.Context(), 1<<20, kept, open)
		must.Succeed(t, err)
		must.Succeed(t, h.Close(t.Context()))
		r.refuses.Store(http.StatusUnauthorized)
	}
}

// TestOffline: a check says that it could not check a module that is not on this machine.
func TestOffline(t *testing.T) {
	r := serve(t)
	s := source(t, t.TempDir(), "# a module\nmodule: "+r.ref("@"+r.digest))
	off := env(t.TempDir())
	off.Modules.Offline = true
	_, err := s.Open(t.Context(), 1<<20, off, open)
	problems := s.Problems(err)
	if len(problems) != 1 || !problems[0].Warning || problems[0].Line != 2 || !strings.Contains(problems[0].Message, "check -connect") {
		t.Errorf("the problems are %v", problems)
	}
	if err == nil || !strings.Contains(err.Error(), "router plugin pull "+s.Module) {
		t.Errorf("the error is %v", err)
	}
}

// TestMistakes: the mistakes of a source have their position.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"module: oci://x":                            "1:9: module: must be like oci://",
		"module: https://x/y":                        "https:// is not supported: give the path of a file, or oci://…",
		"module: a.wasm\nverify: {key: b}":           "2:9: verify: is for modules of registries",
		"module: oci://x/y:1\nverify: {identity: b}": "verify: key is missing",
	} {
		node, problems := config.ParseNode("config.yaml", []byte(text))
		must.Succeed(t, problems.Err())
		if got := node.Decode(new(section)).Err(); got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%s: the problems are %v, want %q", text, got, want)
		}
	}
}
