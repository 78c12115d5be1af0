package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// maxImage bounds the size of the files of the image.
const maxImage = 55_000_000

// checkImage checks the layout of an image. printed is the output of the command that wrote it.
func checkImage(t *testing.T, dir, printed string) {
	t.Helper()
	index, img := open(t, dir)
	if digest, err := index.Digest(); err != nil || !strings.Contains(printed, digest.String()) {
		t.Errorf("%s is the digest (%v), and it printed\n%s", digest, err, printed)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	checkConfig(t, img)
	checkFiles(t, img)
	ofIndex, err := index.IndexManifest()
	succeed(t, err)
	ofImage, err := img.Manifest()
	succeed(t, err)
	for _, annotations := range []map[string]string{ofIndex.Annotations, ofImage.Annotations} {
		if annotations["org.opencontainers.image.version"] != "1.2.3" || annotations["org.opencontainers.image.created"] != "2026-01-02T03:04:05Z" {
			t.Errorf("annotations %v", annotations)
		}
	}
}

// open reads a layout as a client does, and returns its index and the image of the host.
func open(t *testing.T, dir string) (v1.ImageIndex, v1.Image) {
	t.Helper()
	path, err := layout.FromPath(dir)
	succeed(t, err)
	outer, err := path.ImageIndex()
	succeed(t, err)
	manifest, err := outer.IndexManifest()
	succeed(t, err)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("the layout lists %+v, want one index with its version as name", manifest.Manifests)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	succeed(t, err)
	manifest, err = index.IndexManifest()
	succeed(t, err)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Platform.String() != host {
		t.Fatalf("the index lists %+v, want the image of %s", manifest.Manifests, host)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	succeed(t, err)
	return index, img
}

func checkConfig(t *testing.T, img v1.Image) {
	t.Helper()
	file, err := img.ConfigFile()
	succeed(t, err)
	c := file.Config
	if file.OS+"/"+file.Architecture != host || !file.Created.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("made for %s/%s at %s", file.OS, file.Architecture, file.Created)
	}
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/router"}) || !slices.Equal(c.Cmd, []string{"run"}) {
		t.Errorf("runs %q %q as %s", c.Entrypoint, c.Cmd, c.User)
	}
	if !slices.Contains(c.Env, "DELTAROUTER_CONFIG=/etc/deltarouter/config.yaml") || len(c.Volumes) != 1 {
		t.Errorf("environment %q, volumes %v", c.Env, c.Volumes)
	}
	if c.Labels["org.opencontainers.image.licenses"] != "Apache-2.0" {
		t.Errorf("labels %v", c.Labels)
	}
}

// checkFiles compares the files of the image with the list that docs/OPERATIONS.md promises.
func checkFiles(t *testing.T, img v1.Image) {
	t.Helper()
	want := `
drwxr-xr-x 0:0 etc/
drwxr-xr-x 0:0 etc/deltarouter/
drwxr-xr-x 0:0 etc/ssl/
drwxr-xr-x 0:0 etc/ssl/certs/
-rw-r--r-- 0:0 etc/ssl/certs/ca-certificates.crt
dtrwxrwxrwx 0:0 tmp/
drwxr-xr-x 0:0 usr/
drwxr-xr-x 0:0 usr/local/
drwxr-xr-x 0:0 usr/local/bin/
-rwxr-xr-x 0:0 usr/local/bin/router
drwxr-xr-x 0:0 usr/local/share/
drwxr-xr-x 0:0 usr/local/share/licenses/
drwxr-xr-x 0:0 usr/local/share/licenses/deltarouter/
-rw-r--r-- 0:0 usr/local/share/licenses/deltarouter/javascript-engine.txt
drwxr-xr-x 0:0 var/
drwxr-xr-x 0:0 var/lib/
drwx------ 65532:65532 var/lib/deltarouter/
`
	layers, err := img.Layers()
	succeed(t, err)
	got, size := "\n", 0
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		succeed(t, err)
		for files := tar.NewReader(content); ; {
			header, err := files.Next()
			if err == io.EOF { //nolint:errorlint // tar returns io.EOF itself
				break
			}
			succeed(t, err)
			got += fmt.Sprintf("%s %d:%d %s\n", header.FileInfo().Mode(), header.Uid, header.Gid, header.Name)
			if !header.ModTime.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
				t.Errorf("%s has the time %s", header.Name, header.ModTime)
			}
			data, err := io.ReadAll(files)
			succeed(t, err)
			size += len(data)
			checkFile(t, header.Name, data)
		}
	}
	if got != want {
		t.Errorf("the image has%s\nwant%s", got, want)
	}
	t.Logf("the image has %.1f MB without compression", float64(size)/1e6)
	if size > maxImage {
		t.Errorf("the image has %d bytes, its bound is %d: go tool nm -size -sort size lists what a router without -s has", size, maxImage)
	}
}

func checkFile(t *testing.T, name string, data []byte) {
	t.Helper()
	switch name {
	case routerPath:
		program, err := elf.NewFile(bytes.NewReader(data))
		succeed(t, err)
		for _, p := range program.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Error("the router is not a static program")
			}
		}
	case licensesPath + "/javascript-engine.txt":
		for _, part := range []string{"---- quickjs-wasi ----", "---- QuickJS-NG ----", "---- musl, a part of wasi-libc (MIT) ----"} {
			if !strings.Contains(string(data), part) {
				t.Errorf("%s has no %q", name, part)
			}
		}
	case certificatesPath:
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) || strings.Count(string(data), "BEGIN") < 100 || !strings.Contains(string(data), "# CN=ISRG Root X1,") {
			t.Errorf("%s is no bundle of Mozilla's authorities", name)
		}
	}
}

// TestFolder checks that the command replaces its own folders, and no others.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	succeed(t, os.Mkdir(dir, 0o700))
	succeed(t, os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600))
	if err := replaceable(dir, "oci-layout"); err == nil || !strings.Contains(err.Error(), "has no oci-layout") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
		t.Error(err)
	}
}

// TestDockerfile compares the Dockerfile with the image that this command makes.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	succeed(t, err)
	module, err := os.ReadFile("go.mod")
	succeed(t, err)
	c := imageConfig()
	want := []string{
		// A default would override BuildKit's value.
		"ARG TARGETOS", "ARG TARGETARCH",
		"USER " + c.User, "WORKDIR " + c.WorkingDir, "VOLUME " + c.WorkingDir,
		fmt.Sprintf("ENTRYPOINT [%q]", c.Entrypoint[0]), fmt.Sprintf("CMD [%q]", c.Cmd[0]),
		fmt.Sprintf("COPY --from=build --chown=%s /image/%s /%s", c.User, statePath, statePath),
	}
	for _, variable := range c.Env {
		want = append(want, "ENV "+variable)
	}
	for line := range strings.Lines(string(module)) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "toolchain go"); ok {
			want = append(want, "FROM --platform=$BUILDPLATFORM golang:"+version+" AS build")
		}
	}
	entries, err := source{root: "../.."}.rootfs(nil)
	succeed(t, err)
	for _, e := range entries {
		if !strings.Contains(e.name, "/") && e.name != "var" {
			want = append(want, fmt.Sprintf("COPY --from=build /image/%s /%s", e.name, e.name))
		}
	}
	lines := strings.Split(string(text), "\n")
	for _, line := range want {
		if !slices.Contains(lines, line) {
			t.Errorf("the Dockerfile has no line %q", line)
		}
	}
}
