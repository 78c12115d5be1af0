package oci_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/oci"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestParse: a reference has a registry, a repository, and a tag or a digest.
func TestParse(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	for text, want := range map[string]string{
		"oci://ghcr.io/team/dns":                      "",
		"oci://ghcr.io/team/dns:1.2":                  "",
		"oci://localhost:5000/dns:1.2@" + digest:      "",
		"oci://ghcr.io/team/dns@" + digest:            "",
		"oci://ghcr.io":                               "must be like oci://",
		"oci:///team/dns":                             "must be like oci://",
		"ghcr.io/team/dns":                            "must be like oci://",
		"oci://ghcr.io/Team/dns":                      "is no repository",
		"oci://user:secret@ghcr.io/team/dns":          "the host of a registry",
		"oci://ghcr.io/team/dns:":                     "is no tag",
		"oci://ghcr.io/team/dns@sha256:12":            "64 hexadecimal digits",
		"oci://ghcr.io/team/dns@" + digest + "\x00":   "64 hexadecimal digits",
		"oci://ghcr.io/team/../dns":                   "is no repository",
		"oci://ghcr.io/team/dns@" + digest + ":1.2":   "64 hexadecimal digits",
		"oci://ghcr.io/team/dns?x@" + digest:          "is no repository",
		"oci://ghcr.io/team/dns@sha512:" + digest[7:]: "64 hexadecimal digits",
	} {
		r, err := oci.Parse(text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want == "" && r.String() != text:
			t.Errorf("%s is printed as %s", text, r)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: the error is %v, want %q", text, err, want)
		}
	}
}

// TestLayouts: modules are found in artifacts of the CNCF and of Kubewarden, and in images.
func TestLayouts(t *testing.T) {
	t.Parallel()
	layers := func(r *registry, types ...string) (all []object) {
		for _, mediaType := range types {
			all = append(all, r.blob(mediaType, module))
		}
		return all
	}
	for name, make := range map[string]func(r *registry) string{
		"CNCF": func(r *registry) string { return r.artifact(t, module) },
		"Kubewarden": func(r *registry) string {
			return r.manifest(t, object{"layers": layers(r, "application/vnd.wasm.content.layer.v1+wasm")})
		},
		"beside other files": func(r *registry) string {
			return r.manifest(t, object{"layers": append(layers(r, wasmLayer), r.blob("text/markdown", []byte("# read me")))})
		},
		"image": func(r *registry) string {
			return r.manifest(t, object{"layers": []object{r.blob(tarLayer, archive(t, false, tar.Header{Name: "etc/x"}, tar.Header{Name: "./plugin.wasm"}))}})
		},
		"compressed image": func(r *registry) string {
			below := r.blob(tarLayer+"+gzip", archive(t, true, tar.Header{Name: "plugin.wasm", Size: 3}))
			return r.manifest(t, object{"layers": []object{
				below, r.blob(tarLayer+"+gzip", archive(t, true, tar.Header{Name: "/plugin.wasm"})), r.blob(tarLayer, archive(t, false, tar.Header{Name: "other"})),
			}})
		},
		"index": func(r *registry) string {
			one := r.artifact(t, module)
			other := r.artifact(t, []byte("other"))
			return r.manifest(t, object{"mediaType": ociIndex, "manifests": []object{
				{"mediaType": ociManifest, "digest": other, "size": 1, "platform": object{"architecture": "amd64", "os": "linux"}},
				{"mediaType": ociManifest, "digest": one, "size": 1, "platform": object{"architecture": "wasm", "os": "wasip1"}},
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serve(t)
			digest := make(r)
			got, err := r.connect(t, t.TempDir(), oci.Options{}).Module(t.Context(), digest, limit)
			if err != nil || !bytes.Equal(got.Bytes, module) {
				t.Errorf("the module is %q, %v", got.Bytes, err)
			}
		})
	}
}

// TestRejectedLayouts: other content is rejected with the reason, within bounds.
func TestRejectedLayouts(t *testing.T) {
	// Guarantee: module-pinned
	// Guarantee: registry-hostile
	t.Parallel()
	image := func(r *registry, files ...tar.Header) string {
		return r.manifest(t, object{"layers": []object{r.blob(tarLayer+"+gzip", archive(t, true, files...))}})
	}
	many := func(r *registry) (all []object) {
		for range 101 {
			all = append(all, r.blob(wasmLayer, module))
		}
		return all
	}
	for name, c := range map[string]struct {
		make func(r *registry) string
		want string
	}{
		"no module": {func(r *registry) string {
			return r.manifest(t, object{"layers": []object{r.blob("text/plain", module)}})
		}, "its layers are text/plain"},
		"no layer":    {func(r *registry) string { return r.manifest(t, object{}) }, "its layers are none"},
		"two modules": {func(r *registry) string { return r.manifest(t, object{"layers": many(r)[:2]}) }, "2 layers with modules"},
		"many layers": {func(r *registry) string { return r.manifest(t, object{"layers": many(r)}) }, "more than 100 parts"},
		"no file":     {func(r *registry) string { return image(r, tar.Header{Name: "other"}) }, "has the file /plugin.wasm"},
		"removed":     {func(r *registry) string { return image(r, tar.Header{Name: ".wh.plugin.wasm"}) }, "removes the file"},
		"link": {func(r *registry) string {
			return image(r, tar.Header{Name: "plugin.wasm", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"})
		}, "no regular file"},
		"no archive": {func(r *registry) string {
			return r.manifest(t, object{"layers": []object{r.blob(tarLayer+"+gzip", module)}})
		}, "no gzip"},
		"a large module in an image": {func(r *registry) string { return image(r, tar.Header{Name: "plugin.wasm", Size: limit + 1}) }, "too large"},
		"an archive bomb": {func(r *registry) string {
			return image(r, tar.Header{Name: "other", Size: 64 << 20}, tar.Header{Name: "plugin.wasm"})
		}, "too large"},
		"a large module": {func(r *registry) string { return r.artifact(t, bytes.Repeat(module, limit/8)) }, "raise limits.module"},
		"a large manifest": {func(r *registry) string {
			return r.manifest(t, object{"annotations": object{"a": strings.Repeat("x", 1<<20)}})
		}, "too large"},
		"a module with a false size": {func(r *registry) string {
			layer := r.blob(wasmLayer, module)
			layer["size"] = 3
			return r.manifest(t, object{"layers": []object{layer}})
		}, "the answer of the registry is invalid"},
		"another digest of a layer": {func(r *registry) string {
			layer := r.blob(wasmLayer, module)
			r.content["blobs/"+digestOf(module)] = bytes.ToUpper(module)
			return r.manifest(t, object{"layers": []object{layer}})
		}, "differs from its digest"},
		"another digest of a manifest": {func(r *registry) string {
			digest := r.artifact(t, module)
			r.content["manifests/"+digest] = append(r.content["manifests/"+digest], ' ')
			return digest
		}, "differs from its digest"},
		"an index in an index": {func(r *registry) string {
			inner := r.manifest(t, object{"mediaType": ociIndex, "manifests": []object{{"digest": digestOf(module)}}})
			return r.manifest(t, object{"mediaType": ociIndex, "manifests": []object{{"digest": inner}}})
		}, "its layers are none"},
		"no JSON": {func(r *registry) string {
			text := []byte("[")
			r.content["manifests/"+digestOf(text)], r.types["manifests/"+digestOf(text)] = text, ociManifest
			return digestOf(text)
		}, "no JSON of a manifest"},
		"missing": {func(*registry) string { return digestOf(module) }, "does not have it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serve(t)
			digest := c.make(r)
			_, err := r.connect(t, t.TempDir(), oci.Options{}).Module(t.Context(), digest, limit)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

// TestStore: a module that was fetched once is there without the registry. Each read compares its
// content with its digest.
func TestStore(t *testing.T) {
	// Guarantee: registry-down
	t.Parallel()
	r, dir := serve(t), t.TempDir()
	digest := r.artifact(t, module, "1")
	repo := r.connect(t, dir, oci.Options{})
	if got, err := repo.Resolve(t.Context(), "1"); got != digest || err != nil {
		t.Fatalf("the tag is %s, %v", got, err)
	}
	if _, err := repo.Module(t.Context(), digest, limit); err != nil {
		t.Fatal(err)
	}
	before := len(r.asked())
	if _, err := repo.Module(t.Context(), digest, limit); err != nil || len(r.asked()) != before {
		t.Errorf("the registry was asked again: %v, %v", r.asked()[before:], err)
	}
	repo.Close()
	r.Close()
	down := r.connect(t, dir, oci.Options{})
	if got, err := down.Resolve(t.Context(), "1"); got != digest || err != nil {
		t.Errorf("without the registry the tag is %s, %v", got, err)
	}
	if got, err := down.Module(t.Context(), digest, limit); err != nil || !bytes.Equal(got.Bytes, module) {
		t.Errorf("without the registry the module is %q, %v", got.Bytes, err)
	}
	if _, err := down.Resolve(t.Context(), "2"); !errors.Is(err, oci.ErrUnavailable) {
		t.Errorf("an unknown tag: %v", err)
	}

	also := oci.Offline(r.ref(t), oci.Store{Dir: t.TempDir(), Also: dir})
	if _, err := also.Module(t.Context(), digest, limit); err != nil {
		t.Errorf("from a further folder: %v", err)
	}
	damaged := filepath.Join(dir, strings.Replace(digestOf(module), ":", "-", 1))
	if err := os.WriteFile(damaged, bytes.ToUpper(module), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := oci.Offline(r.ref(t), oci.Store{Dir: dir}).Module(t.Context(), digest, limit); !errors.Is(err, oci.ErrNotCached) {
		t.Errorf("a damaged module: %v", err)
	}
}

// TestPush: a pushed module can be fetched, and has the same digest each time.
func TestPush(t *testing.T) {
	t.Parallel()
	r := serve(t)
	repo := r.connect(t, "", oci.Options{})
	digest, err := repo.Push(t.Context(), module, map[string]string{"org.opencontainers.image.version": "1.2"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := repo.Push(t.Context(), module, map[string]string{"org.opencontainers.image.version": "1.2"})
	if err != nil || again != digest {
		t.Errorf("the digests are %s and %s, %v", digest, again, err)
	}
	if got, err := repo.Resolve(t.Context(), "1"); err != nil || got != digest {
		t.Errorf("the tag is %s, %v", got, err)
	}
	got, err := repo.Module(t.Context(), digest, limit)
	if err != nil || !bytes.Equal(got.Bytes, module) || got.Annotations["org.opencontainers.image.version"] != "1.2" {
		t.Errorf("the module is %+v, %v", got, err)
	}
}
