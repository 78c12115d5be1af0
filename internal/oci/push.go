package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// moduleConfig is the configuration of an artifact with a module.
type moduleConfig struct {
	Architecture string   `json:"architecture"`
	OS           string   `json:"os"`
	LayerDigests []string `json:"layerDigests"`
}

// Push uploads a module, tags it, and returns the digest of its manifest. The manifest has no date,
// so the same module with the same annotations has the same digest.
func (r *Repository) Push(ctx context.Context, module []byte, annotations map[string]string) (string, error) {
	if r.remote == nil {
		return "", errors.New("pushing needs a connection")
	}
	layer, err := r.upload(ctx, module, wasmLayer)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(moduleConfig{"wasm", "wasip1", []string{string(layer.Digest)}})
	if err != nil {
		return "", err
	}
	config, err := r.upload(ctx, text, wasmConfig)
	if err != nil {
		return "", err
	}
	text, err = json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config, Layers: []ocispec.Descriptor{layer}, Annotations: annotations,
	})
	if err != nil {
		return "", err
	}
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(digestOf(text)), Size: int64(len(text))}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if err := r.remote.Manifests().PushReference(ctx, d, bytes.NewReader(text), r.ref.Tagged()); err != nil {
		return "", r.worded(ctx, err)
	}
	return string(d.Digest), nil
}
