package main

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/test/must"
)

// The registry does not end the goroutine of its events.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/docker/go-events.(*Broadcaster).run"))
}

// anyTime is the timeout of a registry that answers.
const anyTime = time.Minute

// module is the content of the tests; nothing compiles it.
var module = []byte("\x00asm\x01\x00\x00\x00 a module")

// registry is the registry of the distribution project, in this process.
func registry(t *testing.T, auth string) string {
	t.Helper()
	logrus.SetOutput(io.Discard)
	config, err := configuration.Parse(strings.NewReader(`
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {inmemory: {}, maintenance: {uploadpurging: {enabled: false}}}
http: {secret: test}
` + auth))
	must.Succeed(t, err)
	app := handlers.NewApp(t.Context(), config)
	s := httptest.NewServer(app)
	t.Cleanup(func() {
		s.Close()
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return s.Listener.Addr().String()
}

// connect returns a repository of a registry.
func connect(t *testing.T, host, tag, credentials string) *oci.Repository {
	t.Helper()
	ref, err := oci.Parse("oci://" + host + "/team/dns:" + tag)
	must.Succeed(t, err)
	repo, err := oci.Connect(ref, oci.Store{Dir: t.TempDir()}, oci.Options{Timeout: anyTime, Credentials: credentials})
	must.Succeed(t, err)
	t.Cleanup(repo.Close)
	return repo
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestDistribution: a registry keeps a module, with and without credentials, and a moved tag has
// the new module.
func TestDistribution(t *testing.T) {
	// Guarantee: module-pinned
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	must.Succeed(t, err)
	closed := fmt.Sprintf("auth: {htpasswd: {realm: test, path: %q}}\n", file(t, "htpasswd", "me:"+string(hash)+"\n"))
	for name, auth := range map[string]string{"open": "", "with credentials": closed} {
		t.Run(name, func(t *testing.T) {
			host := registry(t, auth)
			none := file(t, "config.json", "{}")
			credentials := file(t, "config.json", `{"auths": {"`+host+`": {"username": "me", "password": "secret"}}}`)
			repo := connect(t, host, "1", credentials)
			first, err := repo.Push(t.Context(), module, map[string]string{"org.opencontainers.image.version": "1.2"})
			must.Succeed(t, err)
			other := connect(t, host, "1", credentials)
			if found, err := other.Resolve(t.Context(), "1"); err != nil || found != first {
				t.Errorf("the tag is %s, %v, want %s", found, err, first)
			}
			m, err := other.Module(t.Context(), first, 1<<20)
			if err != nil || string(m.Bytes) != string(module) || m.Annotations["org.opencontainers.image.version"] != "1.2" {
				t.Errorf("the module is %q with %v, %v", m.Bytes, m.Annotations, err)
			}
			second, err := repo.Push(t.Context(), append(module, '2'), nil)
			must.Succeed(t, err)
			if found, err := other.Resolve(t.Context(), "1"); err != nil || found != second || second == first {
				t.Errorf("the moved tag is %s, %v, want %s", found, err, second)
			}
			if again, err := connect(t, host, "1", credentials).Module(t.Context(), first, 1<<20); err != nil || string(again.Bytes) != string(module) {
				t.Errorf("the first module is %q, %v", again.Bytes, err)
			}
			if _, err := other.Resolve(t.Context(), "2"); err == nil || !strings.Contains(err.Error(), "does not have it") {
				t.Errorf("another tag: %v", err)
			}
			_, err = connect(t, host, "1", none).Resolve(t.Context(), "1")
			if auth == "" && err != nil || auth != "" && (err == nil || !strings.Contains(err.Error(), "refuses access (HTTP 401)")) {
				t.Errorf("without credentials: %v", err)
			}
		})
	}
}

// keyless runs the command.
func keyless(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b strings.Builder
	err = run(context.WithoutCancel(t.Context()), args, &b, &b)
	return b.String(), err
}

// TestUsage: mistakes of the command line are named, before anything is requested.
func TestUsage(t *testing.T) {
	t.Parallel()
	who := []string{"-identity", "me@example.com", "-issuer", "https://issuer.example.com"}
	for want, args := range map[string][]string{
		"name one reference":       who,
		"must be like oci://":      append(who, "dns:1"),
		"-lock pins a tag":         append(who, "-lock", "plugins.lock", "oci://example.com/team/dns"),
		"name the signer":          {"oci://example.com/team/dns:1"},
		"exclude each other":       append(who, "-identity-regexp", ".*", "oci://example.com/team/dns:1"),
		"-identity-regexp: ":       {"-identity-regexp", "(", "-issuer", "x", "oci://example.com/team/dns:1"},
		"flag provided but not":    {"-key", "x"},
		"-trusted-root missing.js": append(who, "-trusted-root", "missing.json", "oci://example.com/team/dns:1"),
	} {
		if out, err := keyless(t, args...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v: the error is %v, want %q; the output %s", args, err, want, out)
		}
	}
	if out, err := keyless(t, "-h"); err == nil || !strings.Contains(out, "-trusted-root FILE") {
		t.Errorf("the help is %s, %v", out, err)
	}
}
