// Package schemas compares the built-in schemas of internal/cel/schema with those of the sandbox's
// API server, and rewrites them with a flag: `make generate`.
package schemas

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

var update = flag.Bool("update", false, "write the schemas of the API server to the file")

func TestMain(m *testing.M) { sandboxtest.Main(m) }

const file = "../../internal/cel/schema/builtin.json.gz"

// TestBuiltin shows that the file equals the schemas of the API server. It compares the
// decompressed text, because another version of the compressor may write other bytes.
func TestBuiltin(t *testing.T) {
	// Guarantee: typed-expressions
	want, err := json.Marshal(fetch(t))
	must.Succeed(t, err)
	old, err := os.ReadFile(file)
	must.Succeed(t, err)
	if got, err := schema.Decompress(old); err == nil && bytes.Equal(got, want) {
		return
	}
	if !*update {
		t.Fatal("the built-in schemas are not those of the sandbox: run make generate")
	}
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	must.Succeed(t, err)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, w.Close())
	must.Succeed(t, os.WriteFile(file, compressed.Bytes(), 0o600))
	t.Logf("%d bytes, %d compressed", len(want), compressed.Len())
}

// fetch reads the schemas of all groups and versions.
func fetch(t *testing.T) *schema.Set {
	t.Helper()
	cfg := sandboxtest.Start(t).RESTConfig()
	client, err := rest.HTTPClientFor(cfg)
	must.Succeed(t, err)
	get := func(path string) []byte {
		resp, err := client.Get(cfg.Host + path)
		must.Succeed(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(path, resp.Status, err)
		}
		return text
	}
	var root struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	must.Succeed(t, json.Unmarshal(get("/openapi/v3"), &root))
	all := &schema.Set{}
	for path, at := range root.Paths {
		if path != "api/v1" && (!strings.HasPrefix(path, "apis/") || strings.Count(path, "/") != 2) {
			continue // paths without resources: versions, OpenID
		}
		set, err := schema.Parse(get(at.URL))
		if err != nil {
			t.Fatal(path, err)
		}
		all.Merge(set)
	}
	if all.Len() < 50 {
		t.Fatal("the API server has only", all.Len(), "resources")
	}
	return all
}
