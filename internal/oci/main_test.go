package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	limit   = 1 << 20
	anyTime = time.Minute // the timeout of a registry that answers

	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	tarLayer    = "application/vnd.oci.image.layer.v1.tar"
	wasmLayer   = "application/wasm"
)

// module is the content of most tests; nothing compiles it.
var module = []byte("\x00asm\x01\x00\x00\x00 a module")

// object is a JSON object.
type object = map[string]any

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// registry is a registry with one repository, team/dns.
type registry struct {
	*httptest.Server

	mu       sync.Mutex
	content  map[string][]byte // by path below the repository: manifests/… or blobs/…
	types    map[string]string
	requests []string
	// instead answers a request; false: it does not
	instead func(w http.ResponseWriter, r *http.Request) bool
}

func serve(t *testing.T) *registry {
	t.Helper()
	r := &registry{content: map[string][]byte{}, types: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/v2/team/dns/")
	r.mu.Lock()
	r.requests = append(r.requests, req.Method+" "+path)
	instead := r.instead
	r.mu.Unlock()
	if instead != nil && instead(w, req) {
		return
	}
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch req.Method {
	case http.MethodPost:
		w.Header().Set("Location", req.URL.Path+"one")
		w.WriteHeader(http.StatusAccepted)
		return
	case http.MethodPut:
		if digest := req.URL.Query().Get("digest"); digest != "" {
			path = "blobs/" + digest
		} else {
			r.content["manifests/"+digestOf(body)], r.types["manifests/"+digestOf(body)] = body, req.Header.Get("Content-Type")
		}
		r.content[path], r.types[path] = body, req.Header.Get("Content-Type")
		w.WriteHeader(http.StatusCreated)
		return
	}
	content, ok := r.content[path]
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", r.types[path])
	if digest, ok := strings.CutPrefix(path, "manifests/sha256:"); ok {
		w.Header().Set("Docker-Content-Digest", "sha256:"+digest) // true or not
	}
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(content))
}

// asked returns the requests so far.
func (r *registry) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.requests...)
}

func (r *registry) host() string { return r.Listener.Addr().String() }

// blob adds content and returns its descriptor.
func (r *registry) blob(mediaType string, content []byte) object {
	path := "blobs/" + digestOf(content)
	r.content[path], r.types[path] = content, "application/octet-stream"
	return object{"mediaType": mediaType, "digest": digestOf(content), "size": len(content)}
}

// manifest adds a manifest, with tags, and returns its digest.
func (r *registry) manifest(t *testing.T, m object, tags ...string) string {
	t.Helper()
	all := object{"schemaVersion": 2, "mediaType": ociManifest}
	maps.Copy(all, m)
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(tags, digestOf(text)) {
		r.content["manifests/"+name], r.types["manifests/"+name] = text, all["mediaType"].(string)
	}
	return digestOf(text)
}

// artifact adds an artifact with a module.
func (r *registry) artifact(t *testing.T, content []byte, tags ...string) string {
	t.Helper()
	config := r.blob("application/vnd.wasm.config.v0+json", []byte("{}"))
	return r.manifest(t, object{"config": config, "layers": []object{r.blob(wasmLayer, content)}}, tags...)
}

// connect returns the repository of the registry, with a store in dir; empty: none.
func (r *registry) connect(t *testing.T, dir string, o oci.Options) *oci.Repository {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = anyTime
	}
	if o.Credentials == "" {
		o.Credentials = writeFile(t, "config.json", "{}")
	}
	repo, err := oci.Connect(r.ref(t), oci.Store{Dir: dir}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(repo.Close)
	return repo
}

func (r *registry) ref(t *testing.T) oci.Ref {
	t.Helper()
	ref, err := oci.Parse("oci://" + r.host() + "/team/dns:1")
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// archive returns a tar archive with files, by their headers.
func archive(t *testing.T, zipped bool, files ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	var to io.WriteCloser = nopCloser{&b}
	if zipped {
		to = gzip.NewWriter(&b)
	}
	w := tar.NewWriter(to)
	for _, h := range files {
		content := module
		if h.Size > 0 {
			content = make([]byte, h.Size)
		}
		if h.Typeflag != 0 && h.Typeflag != tar.TypeReg {
			content = nil
		}
		h.Size, h.Mode = int64(len(content)), 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
