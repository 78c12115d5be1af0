//go:build linux

package image

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// container is the image, unpacked.
type container struct {
	root string // folder with its files
	settings
}

// settings are the part of an image's configuration that a container runtime applies.
type settings struct {
	User, WorkingDir     string
	Env, Entrypoint, Cmd []string
}

// descriptor is a reference of an OCI image layout to one of its blobs.
type descriptor struct{ Digest string }

// build runs tools/release, which builds the image, and unpacks the result as a container runtime
// does.
func build(t *testing.T) container {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	cmd := exec.Command("go", "run", ".", "image", "-platforms", "linux/"+runtime.GOARCH, "-version", "test", "-out", dir)
	cmd.Dir = filepath.Join("..", "..", "tools", "release")
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the image: %v\n%s", err, out)
	}
	var outer, index struct{ Manifests []descriptor }
	readJSON(t, filepath.Join(dir, "index.json"), &outer)
	readJSON(t, blob(dir, outer.Manifests[0]), &index)
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	readJSON(t, blob(dir, index.Manifests[0]), &manifest)
	var config struct{ Config settings }
	readJSON(t, blob(dir, manifest.Config), &config)
	c := container{root: t.TempDir(), settings: config.Config}
	for _, layer := range manifest.Layers {
		unpack(t, blob(dir, layer), c.root)
	}
	return c
}

// blob returns the path of a blob in a layout.
func blob(dir string, d descriptor) string {
	return filepath.Join(dir, "blobs", filepath.FromSlash(strings.ReplaceAll(d.Digest, ":", "/")))
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(data, into))
}

// unpack writes the files of a layer into a folder. They belong to the user of the test.
func unpack(t *testing.T, layer, root string) {
	t.Helper()
	packed, err := os.Open(layer)
	must.Succeed(t, err)
	defer packed.Close()
	content, err := gzip.NewReader(packed)
	must.Succeed(t, err)
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must.Succeed(t, err)
		path := filepath.Join(root, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			must.Succeed(t, os.Mkdir(path, 0o755))
			continue
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(header.Mode))
		must.Succeed(t, err)
		_, err = io.Copy(file, files)
		must.Succeed(t, errors.Join(err, file.Close()))
	}
}
