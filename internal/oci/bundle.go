package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// AnyRepository is the identity for [Repository.Verify] with which signatures for all repositories
// are valid, and bundles, which name none.
const AnyRepository = "any"

// The types of bundles (https://docs.sigstore.dev/about/bundle), and of the statement of cosign
// sign in them. Other statements of the same key, as the result of a scan, are no signature of a
// module.
const (
	BundlePrefix  = "application/vnd.dev.sigstore.bundle"
	CosignSigned  = "https://sigstore.dev/cosign/sign/v1"
	statementType = "application/vnd.in-toto+json"
)

// bundle is a signature of cosign 3: an envelope with a statement
// (https://github.com/secure-systems-lab/dsse/blob/master/envelope.md).
type bundle struct {
	Envelope struct {
		Payload     []byte `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// statement is the part of a statement of in-toto that is compared.
type statement struct {
	Subject []struct {
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
	PredicateType string `json:"predicateType"`
}

// errNoBundle is the absence of bundles.
var errNoBundle = errors.New("it has no bundle")

// verifyBundles looks for a bundle of the key among the artifacts that refer to the digest. The
// store remembers the artifact.
func (r *Repository) verifyBundles(ctx context.Context, digest string, key Key) error {
	of := Ref{Registry: r.ref.Registry, Repository: r.ref.Repository, Tag: fileOf(digest) + ".bundle"} // no tag of the registry
	if known, ok := r.store.resolved(of); ok && r.verifyBundlesIn(ctx, known, digest, key) == nil {
		return nil
	}
	list, err := r.referrersOf(ctx, digest, BundlePrefix)
	if err != nil {
		return err
	}
	reason := errNoBundle
	for _, d := range list {
		switch err := r.verifyBundlesIn(ctx, d, digest, key); {
		case err == nil:
			r.kept(r.store.setResolved(of, d))
			return nil
		case errors.Is(err, ErrUnavailable), errors.Is(err, ErrNotCached):
			return fmt.Errorf("bundles: %w", err)
		case !errors.Is(err, errNoBundle):
			reason = err
		}
	}
	return reason
}

// verifyBundlesIn looks for a bundle of the key in an artifact.
func (r *Repository) verifyBundlesIn(ctx context.Context, artifact, digest string, key Key) error {
	found, err := r.attached(ctx, artifact, BundlePrefix)
	if err != nil {
		return err
	}
	reason := errNoBundle
	for _, a := range found {
		if reason = verifyBundle(a.Content, digest, key); reason == nil {
			return nil
		}
	}
	return reason
}

func verifyBundle(text []byte, digest string, key Key) error {
	var b bundle
	if err := json.Unmarshal(text, &b); err != nil {
		return errors.New("a bundle cannot be read")
	}
	e := &b.Envelope
	if e.PayloadType != statementType || len(e.Signatures) != 1 {
		return errors.New("a bundle has no envelope with one signature of a statement")
	}
	signed := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
	if !key.signed(signed, e.Signatures[0].Sig) {
		return errors.New("a bundle is by another key")
	}
	var s statement
	if err := json.Unmarshal(e.Payload, &s); err != nil || s.PredicateType != CosignSigned {
		return errors.New("the statement of a bundle is none of cosign sign")
	}
	for _, of := range s.Subject {
		if "sha256:"+of.Digest["sha256"] == digest {
			return nil
		}
	}
	return fmt.Errorf("a bundle is not for %s", digest)
}

// referrersOf returns the digests of the artifacts that refer to a digest, and may have layers
// whose type has a prefix.
func (r *Repository) referrersOf(ctx context.Context, of, prefix string) ([]string, error) {
	list, err := r.referrers(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("referrers: %w", err)
	}
	var all []string
	for _, d := range list {
		// a list of a client that does not know types of artifacts has none
		if !strings.HasPrefix(d.ArtifactType, prefix) && d.ArtifactType != "" && d.ArtifactType != ocispec.MediaTypeEmptyJSON {
			continue
		}
		if !isDigest(string(d.Digest)) {
			return nil, errors.New("referrers: the registry lists a digest that is none")
		}
		all = append(all, string(d.Digest))
	}
	return all, nil
}
