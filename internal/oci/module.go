package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// The media types of artifacts with a module.
// https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/ describes the first two.
const (
	wasmConfig      = "application/vnd.wasm.config.v0+json"
	wasmLayer       = "application/wasm"
	kubewardenLayer = "application/vnd.wasm.content.layer.v1+wasm"

	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// imageFile is the module in an image.
const imageFile = "plugin.wasm"

// The bounds of the layers of an image, in addition to those of the module.
const (
	maxEntries = 10_000
	tarOver    = 8 << 20 // bytes of other files and headers, before and after decompression
)

// manifest is a manifest or an index.
type manifest struct {
	MediaType   string               `json:"mediaType"`
	Config      ocispec.Descriptor   `json:"config"`
	Layers      []ocispec.Descriptor `json:"layers"`
	Manifests   []ocispec.Descriptor `json:"manifests"`
	Annotations map[string]string    `json:"annotations"`
}

// Module is a module of a registry.
type Module struct {
	Bytes       []byte
	MediaType   string            // of the layer that it is, or is in
	Annotations map[string]string // of its manifest; written by the author
}

// Module returns the module of the manifest with a digest. It has at most limit bytes.
func (r *Repository) Module(ctx context.Context, digest string, limit int64) (Module, error) {
	m, err := r.manifestBy(ctx, digest)
	if err == nil && len(m.Manifests) > 0 {
		var one string
		if one, err = m.platform(); err == nil {
			m, err = r.manifestBy(ctx, one)
		}
	}
	if err != nil {
		return Module{}, err
	}
	layer, image, err := m.module()
	if err != nil {
		return Module{}, err
	}
	found := Module{Annotations: m.Annotations, MediaType: layer.MediaType}
	if image {
		found.Bytes, found.MediaType, err = r.fromImage(ctx, m.Layers, limit)
	} else {
		found.Bytes, err = r.blob(ctx, layer, limit)
	}
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("%w: raise limits.module", err)
	}
	return found, err
}

// platform returns the digest of the manifest for WebAssembly in an index.
func (m *manifest) platform() (string, error) {
	var found []ocispec.Descriptor
	for _, d := range m.Manifests {
		if d.Platform != nil && d.Platform.Architecture == "wasm" {
			found = append(found, d)
		}
	}
	if len(found) == 0 && len(m.Manifests) == 1 {
		found = m.Manifests
	}
	if len(found) != 1 || !isDigest(string(found[0].Digest)) {
		return "", fmt.Errorf("it is an index with %d manifests, and %d of them are for the architecture wasm: write the digest of one", len(m.Manifests), len(found))
	}
	return string(found[0].Digest), nil
}

// module returns the layer that is the module; image: it is in a layer of an image.
func (m *manifest) module() (layer ocispec.Descriptor, image bool, err error) {
	var found []ocispec.Descriptor
	for _, l := range m.Layers {
		if l.MediaType == wasmLayer || l.MediaType == kubewardenLayer {
			found = append(found, l)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], false, nil
	case len(found) > 1:
		return layer, false, fmt.Errorf("it has %d layers with modules: a handler needs one", len(found))
	}
	for _, l := range m.Layers {
		if _, ok := compression(l.MediaType); ok {
			return layer, true, nil
		}
	}
	var types []string
	for _, l := range m.Layers {
		types = append(types, printable.Line(short(l.MediaType)))
	}
	return layer, false, fmt.Errorf("it has no layer %s or %s, and is no image: its layers are %s",
		wasmLayer, kubewardenLayer, strings.Join(append(types, "none")[:max(1, len(types))], ", "))
}

// compression reports whether a layer is an archive of files, and whether it is compressed.
func compression(mediaType string) (zipped, archive bool) {
	switch mediaType {
	case ocispec.MediaTypeImageLayer, "application/vnd.docker.image.rootfs.diff.tar":
		return false, true
	case ocispec.MediaTypeImageLayerGzip, "application/vnd.docker.image.rootfs.diff.tar.gzip":
		return true, true
	}
	return false, false
}

// fromImage returns the file plugin.wasm of an image: that of the last layer that has it.
func (r *Repository) fromImage(ctx context.Context, layers []ocispec.Descriptor, limit int64) ([]byte, string, error) {
	for _, l := range slices.Backward(layers) {
		zipped, archive := compression(l.MediaType)
		if !archive {
			return nil, "", fmt.Errorf("its layer has the type %s, which is not supported: use tar or tar+gzip", printable.Line(short(l.MediaType)))
		}
		content, err := r.blob(ctx, l, limit+tarOver)
		if err != nil {
			return nil, "", err
		}
		found, err := unpack(content, zipped, limit)
		if found != nil || err != nil {
			return found, l.MediaType, err
		}
	}
	return nil, "", fmt.Errorf("none of its %d layers has the file /%s", len(layers), imageFile)
}

// unpack returns the module of an archive; nil: it has none.
func unpack(archive []byte, zipped bool, limit int64) ([]byte, error) {
	var from io.Reader = bytes.NewReader(archive)
	if zipped {
		unzip, err := gzip.NewReader(from)
		if err != nil {
			return nil, errors.New("its layer is no gzip")
		}
		from = unzip
	}
	bounded := &io.LimitedReader{R: from, N: limit + tarOver}
	files := tar.NewReader(bounded)
	for range maxEntries {
		h, err := files.Next()
		if bounded.N <= 0 {
			return nil, fmt.Errorf("%w: a layer of its image has more than %d bytes", errTooLarge, limit+tarOver)
		}
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, errors.New("its layer is no tar archive")
		}
		switch path.Clean("/" + h.Name) {
		case "/.wh." + imageFile, "/.wh..wh..opq":
			return nil, fmt.Errorf("a layer of its image removes the file /%s", imageFile)
		case "/" + imageFile:
			if h.Typeflag != tar.TypeReg {
				return nil, fmt.Errorf("/%s of its image is no regular file", imageFile)
			}
			if h.Size > limit {
				return nil, fmt.Errorf("%w: %d bytes, more than %d", errTooLarge, h.Size, limit)
			}
			module, err := readAll(files, limit)
			if err != nil {
				return nil, errors.New("its layer is no tar archive")
			}
			return module, nil
		}
	}
	return nil, fmt.Errorf("a layer of its image has more than %d files", maxEntries)
}
