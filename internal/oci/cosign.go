package oci

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Key is the public key of a cosign signature: ECDSA, Ed25519 or RSA.
type Key struct{ public crypto.PublicKey }

// minRSA is the minimum size of an RSA key, in bits.
const minRSA = 2048

// ParseKey reads a public key in PEM, such as the file cosign.pub.
func ParseKey(text []byte) (Key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return Key{}, errors.New("it is no PEM file: cosign generate-key-pair writes cosign.pub")
	}
	if block.Type != "PUBLIC KEY" {
		return Key{}, fmt.Errorf("it has a block of the type %q, and not a PUBLIC KEY: name cosign.pub", block.Type)
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, errors.New("its public key cannot be read")
	}
	switch key := public.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return Key{public}, nil
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSA {
			return Key{}, fmt.Errorf("its RSA key has %d bits, fewer than %d", key.N.BitLen(), minRSA)
		}
		return Key{public}, nil
	}
	return Key{}, errors.New("its public key is neither ECDSA, nor Ed25519, nor RSA")
}

// String returns the kind and the SHA-256 of the key.
func (k Key) String() string {
	der, err := x509.MarshalPKIXPublicKey(k.public)
	if err != nil {
		return "unknown"
	}
	kind := "RSA"
	switch k.public.(type) {
	case *ecdsa.PublicKey:
		kind = "ECDSA"
	case ed25519.PublicKey:
		kind = "Ed25519"
	}
	return kind + " " + digestOf(der)
}

// signed reports whether signature is one of the payload by the key.
func (k Key) signed(payload, signature []byte) bool {
	sum := sha256.Sum256(payload)
	switch key := k.public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum[:], signature)
	case ed25519.PublicKey:
		return ed25519.Verify(key, payload, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
	}
	return false
}

const (
	signedLayer = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureOf = "dev.cosignproject.cosign/signature"
	maxPayload  = 64 << 10
)

// payload is the signed text of cosign.
type payload struct {
	Critical struct {
		Type  string `json:"type"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
	} `json:"critical"`
}

// SignatureTag returns the tag of the signatures of a digest.
func SignatureTag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

// Verify returns an error unless the key has signed the digest in the repository with the name
// identity; empty: this one. A bundle names no repository: it is valid for [AnyRepository] only. It
// asks the registry if the store has no valid signature.
func (r *Repository) Verify(ctx context.Context, digest string, key Key, identity string) error {
	if identity == "" {
		identity = r.ref.Name()
	}
	err := r.verifyTag(ctx, digest, key, identity)
	if err == nil || errors.Is(err, ErrUnavailable) && identity != AnyRepository {
		return err
	}
	switch bundles := r.verifyBundles(ctx, digest, key); {
	case bundles == nil && identity == AnyRepository:
		return nil
	case bundles == nil:
		return fmt.Errorf("it is signed by a bundle, the default of cosign 3, which names no repository: if all that the key signs may be used here, write %s into verify.identity; "+
			"otherwise sign it with cosign sign --new-bundle-format=false", AnyRepository)
	case errors.Is(bundles, errNoBundle), errors.Is(bundles, ErrUnavailable), errors.Is(bundles, ErrNotCached):
		return err
	default:
		return fmt.Errorf("%w; %w", err, bundles)
	}
}

// verifyTag looks for a valid signature at the tag [SignatureTag].
func (r *Repository) verifyTag(ctx context.Context, digest string, key Key, identity string) error {
	of := Ref{Registry: r.ref.Registry, Repository: r.ref.Repository, Tag: SignatureTag(digest)}
	if known, ok := r.store.resolved(of); ok {
		if r.verifyBy(ctx, known, digest, key, identity) == nil {
			return nil
		}
	}
	found, err := r.Resolve(ctx, of.Tag)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("it is not signed: the repository has no tag %s; sign it with cosign sign -key", of.Tag)
	}
	if err != nil {
		return fmt.Errorf("signatures: %w", err)
	}
	return r.verifyBy(ctx, found, digest, key, identity)
}

// verifyBy looks for a valid signature in the manifest of signatures.
func (r *Repository) verifyBy(ctx context.Context, signatures, digest string, key Key, identity string) error {
	m, err := r.manifestBy(ctx, signatures)
	if err != nil {
		return fmt.Errorf("signatures: %w", err)
	}
	reason := errors.New("there is none")
	for _, l := range m.Layers {
		if l.MediaType != signedLayer {
			continue
		}
		err := r.verifyLayer(ctx, l, digest, key, identity)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotCached) {
			return fmt.Errorf("signatures: %w", err)
		}
		reason = err
	}
	return fmt.Errorf("it has no valid signature of the key %s: %w", key, reason)
}

func (r *Repository) verifyLayer(ctx context.Context, l ocispec.Descriptor, digest string, key Key, identity string) error {
	signature, err := base64.StdEncoding.DecodeString(l.Annotations[signatureOf])
	if err != nil {
		return errors.New("a signature is no base64")
	}
	text, err := r.blob(ctx, l, maxPayload)
	if err != nil {
		return err
	}
	if !key.signed(text, signature) {
		return errors.New("a signature is by another key")
	}
	var p payload
	if err := json.Unmarshal(text, &p); err != nil || p.Critical.Type != "cosign container image signature" {
		return errors.New("the signed text is none of cosign for an artifact")
	}
	if p.Critical.Image.Digest != digest {
		return fmt.Errorf("the signature is of %q, and not of %s", short(p.Critical.Image.Digest), digest)
	}
	if got := withoutTag(p.Critical.Identity.Reference); got != identity && identity != AnyRepository {
		return fmt.Errorf("the signature is for the repository %q, and not for %s: if it was copied from there, write that into verify.identity", short(got), identity)
	}
	return nil
}

// withoutTag removes the tag and the digest of a reference.
func withoutTag(reference string) string {
	reference, _, _ = strings.Cut(reference, "@")
	if at := strings.LastIndex(reference, ":"); at > strings.LastIndex(reference, "/") {
		return reference[:at]
	}
	return reference
}
