package oci_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/oci"
)

// TestHostileRegistry: no answer of a registry makes a fetch endless or large.
func TestHostileRegistry(t *testing.T) {
	// Guarantee: registry-hostile
	t.Parallel()
	endless := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", ociManifest)
		w.Header().Set("Docker-Content-Digest", r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		part := make([]byte, 64<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		instead func(w http.ResponseWriter, r *http.Request) bool
		timeout time.Duration
		want    error
		text    string
	}{
		"no answer": {func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }, 50 * time.Millisecond, oci.ErrUnavailable, "does not answer in time"},
		"a slow body": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("Content-Type", ociManifest)
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}, 50 * time.Millisecond, oci.ErrUnavailable, "does not answer in time"},
		"an endless manifest": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", "1099511627776")
			endless(w, r)
			return true
		}, anyTime, nil, "too large"},
		"an endless layer": {func(w http.ResponseWriter, r *http.Request) bool {
			blob := strings.Contains(r.URL.Path, "/blobs/")
			if blob {
				endless(w, r)
			}
			return blob
		}, anyTime, nil, "too large"},
		"an error": {status(http.StatusServiceUnavailable), anyTime, oci.ErrUnavailable, "HTTP 503"},
		"an endless error": {func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			endless(w, r)
			return true
		}, anyTime, oci.ErrUnavailable, "HTTP 500"},
		"no permission": {status(http.StatusForbidden), anyTime, nil, "refuses access (HTTP 403)"},
		"redirects in a circle": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}, anyTime, nil, "after 5 redirects"},
		"a redirect to the metadata of a cloud": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusTemporaryRedirect)
			return true
		}, anyTime, nil, "169.254.169.254"},
		"a redirect to a file": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}, anyTime, nil, "file://"},
		"a token server that is a metadata service": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://169.254.169.254/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, anyTime, nil, "169.254.169.254"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serve(t)
			digest := r.artifact(t, module)
			r.instead = c.instead
			_, err := r.connect(t, t.TempDir(), oci.Options{Timeout: c.timeout}).Module(t.Context(), digest, limit)
			if err == nil || !strings.Contains(err.Error(), c.text) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("the error is %v, want %q", err, c.text)
			}
		})
	}
}

func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
}

// TestRedirectWithoutCredentials: a layer may be at another host, which does not get the
// credentials of the registry.
func TestRedirectWithoutCredentials(t *testing.T) {
	// Guarantee: registry-hostile
	t.Parallel()
	var got atomic.Value
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		_, _ = w.Write(module)
	}))
	t.Cleanup(elsewhere.Close)
	r := serve(t)
	digest := r.artifact(t, module)
	r.instead = func(w http.ResponseWriter, req *http.Request) bool {
		if user, password, ok := req.BasicAuth(); !ok || user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if strings.Contains(req.URL.Path, "/blobs/") {
			http.Redirect(w, req, elsewhere.URL, http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	auths := `{"auths": {"` + r.host() + `": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("me:secret")) + `"}}}`
	repo := r.connect(t, "", oci.Options{Credentials: writeFile(t, "config.json", auths)})
	if _, err := repo.Module(t.Context(), digest, limit); err != nil {
		t.Fatal(err)
	}
	if header := got.Load(); header != "" {
		t.Errorf("the other host got %v", header)
	}
}

// TestHelperIsRefused: a credential helper of the Docker configuration is not run, and the error
// names it.
func TestHelperIsRefused(t *testing.T) {
	// Guarantee: registry-helper
	t.Parallel()
	r := serve(t)
	r.instead = status(http.StatusUnauthorized)
	for name, text := range map[string]string{"of all": `{"credsStore": "touch"}`, "of one": `{"credHelpers": {"` + r.host() + `": "touch"}}`} {
		_, err := r.connect(t, "", oci.Options{Credentials: writeFile(t, "config.json", text)}).Resolve(t.Context(), "1")
		if err == nil || !strings.Contains(err.Error(), "docker-credential-touch") || !strings.Contains(err.Error(), "-allow-exec") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// TestCredentialsFile: a named file must be a Docker configuration; its content is in no error.
func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	ref, err := oci.Parse("oci://localhost:1/team/dns")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		writeFile(t, "a", "secret"):                                "no Docker configuration",
		writeFile(t, "b", `{"auths": {"x": {"auth": "secret!"}}}`): "no Docker configuration",
		writeFile(t, "c", `{"auths": "secret"}`):                   "no Docker configuration",
		t.TempDir() + "/missing":                                   "cannot be read",
	} {
		_, err := oci.Connect(ref, oci.Store{}, oci.Options{Credentials: file})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
