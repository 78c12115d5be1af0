package oci

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Attached is a layer of an artifact that describes another one, as a signature does.
type Attached struct {
	Content     []byte
	Annotations map[string]string
}

// maxAttached bounds such a layer.
const maxAttached = 1 << 20

// Signatures returns the signed texts of cosign at the tag [SignatureTag] of a digest. They are not
// verified.
func (r *Repository) Signatures(ctx context.Context, digest string) ([]Attached, error) {
	found, err := r.Resolve(ctx, SignatureTag(digest))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("signatures: %w", err)
	}
	return r.attached(ctx, found, signedLayer)
}

// Referrers returns the layers whose type has a prefix, of the artifacts that refer to a digest.
// They are not verified.
func (r *Repository) Referrers(ctx context.Context, of, prefix string) ([]Attached, error) {
	list, err := r.referrersOf(ctx, of, prefix)
	if err != nil {
		return nil, err
	}
	var all []Attached
	for _, d := range list {
		found, err := r.attached(ctx, d, prefix)
		if err != nil {
			return nil, fmt.Errorf("referrers: %w", err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// errTooMany ends a list.
var errTooMany = fmt.Errorf("there are more than %d", maxParts)

func (r *Repository) referrers(ctx context.Context, of string) ([]ocispec.Descriptor, error) {
	if r.remote == nil {
		return nil, ErrNotCached
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	var list []ocispec.Descriptor
	err := r.remote.Referrers(ctx, ocispec.Descriptor{Digest: digest.Digest(of)}, "", func(page []ocispec.Descriptor) error {
		list = append(list, page...)
		if len(list) > maxParts {
			return errTooMany
		}
		return nil
	})
	if errors.Is(err, errTooMany) {
		return nil, err
	}
	if err != nil {
		return nil, r.worded(ctx, err)
	}
	return list, nil
}

// attached returns the layers of a manifest whose type has a prefix.
func (r *Repository) attached(ctx context.Context, digest, prefix string) ([]Attached, error) {
	m, err := r.manifestBy(ctx, digest)
	if err != nil {
		return nil, err
	}
	var all []Attached
	for _, l := range m.Layers {
		if !strings.HasPrefix(l.MediaType, prefix) {
			continue
		}
		content, err := r.blob(ctx, l, maxAttached)
		if err != nil {
			return nil, err
		}
		all = append(all, Attached{content, l.Annotations})
	}
	return all, nil
}
