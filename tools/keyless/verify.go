package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/deltarouter/deltarouter/internal/oci"
)

// signer is the required identity of a signature.
type signer struct{ identity, pattern, issuer string }

// policy returns the requirement for certificates.
func (s signer) policy() (verify.CertificateIdentity, error) {
	pattern := s.pattern
	switch {
	case s.identity == "" && pattern == "" || s.issuer == "":
		return verify.CertificateIdentity{}, errors.New("name the signer: -identity and -issuer, as -identity me@example.com -issuer https://accounts.example.com")
	case s.identity != "" && pattern != "":
		return verify.CertificateIdentity{}, errors.New("-identity and -identity-regexp exclude each other")
	case pattern != "":
		pattern = "^(?:" + pattern + ")$" // a part of a name is none of the signer
	}
	policy, err := verify.NewShortCertificateIdentity(s.issuer, "", s.identity, pattern)
	if err != nil {
		return policy, fmt.Errorf("-identity-regexp: %w", err)
	}
	return policy, nil
}

// author is the identity in a verified certificate.
type author struct{ identity, issuer string }

func (a author) String() string { return a.identity + ", confirmed by " + a.issuer }

// trustedRoot reads a root of trust; empty: that of the public instance of Sigstore, by TUF.
func trustedRoot(file string) (root.TrustedMaterial, error) {
	if file == "" {
		roots, err := root.FetchTrustedRoot()
		if err != nil {
			return nil, fmt.Errorf("the root of trust of Sigstore cannot be fetched: give -trusted-root: %w", err)
		}
		return roots, nil
	}
	roots, err := root.NewTrustedRootFromPath(file)
	if err != nil {
		return nil, fmt.Errorf("-trusted-root %s: %w", file, err)
	}
	return roots, nil
}

// verifier returns a verifier that requires all that the instance of Sigstore offers: an entry in a
// transparency log, a certificate in a log of certificates, and the time of the signature by one of
// its authorities.
func verifier(roots root.TrustedMaterial) (*verify.Verifier, error) {
	required := []verify.VerifierOption{verify.WithObserverTimestamps(1)}
	if len(roots.RekorLogs()) > 0 {
		required = append(required, verify.WithTransparencyLog(1))
	}
	if len(roots.CTLogs()) > 0 {
		required = append(required, verify.WithSignedCertificateTimestamps(1))
	}
	return verify.NewVerifier(roots, required...)
}

// verified returns the author of a valid signature of the digest.
func verified(ctx context.Context, repo *oci.Repository, digest string, roots root.TrustedMaterial, policy verify.CertificateIdentity) (author, error) {
	v, err := verifier(roots)
	if err != nil {
		return author{}, fmt.Errorf("the root of trust is not sufficient: %w", err)
	}
	bundles, err := repo.Referrers(ctx, digest, oci.BundlePrefix)
	if err != nil {
		return author{}, err
	}
	reason := errors.New("there is none")
	for _, a := range bundles {
		by, err := verifyBundle(v, a, digest, policy)
		if err == nil {
			return by, nil
		}
		reason = err
	}
	signatures, err := repo.Signatures(ctx, digest)
	if err != nil {
		return author{}, err
	}
	for _, a := range signatures {
		by, err := verifySignature(v, a, digest, policy)
		if err == nil {
			return by, nil
		}
		reason = err
	}
	return author{}, fmt.Errorf("it has no valid signature of the identity: %w", reason)
}

// verifyBundle verifies a bundle.
func verifyBundle(v *verify.Verifier, a oci.Attached, digest string, policy verify.CertificateIdentity) (author, error) {
	var b bundle.Bundle
	if err := b.UnmarshalJSON(a.Content); err != nil {
		return author{}, fmt.Errorf("a bundle cannot be read: %w", err)
	}
	sum, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	if err != nil {
		return author{}, err
	}
	return check(v, &b, verify.WithArtifactDigest("sha256", sum), policy)
}

func check(v *verify.Verifier, b *bundle.Bundle, of verify.ArtifactPolicyOption, policy verify.CertificateIdentity) (author, error) {
	found, err := v.Verify(b, verify.NewPolicy(of, verify.WithCertificateIdentity(policy)))
	if err != nil {
		return author{}, err
	}
	if found.Statement != nil && found.Statement.GetPredicateType() != oci.CosignSigned {
		return author{}, fmt.Errorf("the statement has the type %q, and is not %s", found.Statement.GetPredicateType(), oci.CosignSigned)
	}
	c := found.Signature.Certificate
	return author{c.SubjectAlternativeName, c.Issuer}, nil
}

// payload is the signed text of cosign in its older format.
type payload struct {
	Critical struct {
		Type  string `json:"type"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
	} `json:"critical"`
}

// verifySignature verifies a signature in the older format.
func verifySignature(v *verify.Verifier, a oci.Attached, digest string, policy verify.CertificateIdentity) (author, error) {
	b, err := fromAnnotations(a)
	if err != nil {
		return author{}, err
	}
	by, err := check(v, b, verify.WithArtifact(strings.NewReader(string(a.Content))), policy)
	if err != nil {
		return author{}, err
	}
	var p payload
	if err := json.Unmarshal(a.Content, &p); err != nil || p.Critical.Type != "cosign container image signature" {
		return author{}, errors.New("the signed text is none of cosign for an artifact")
	}
	if p.Critical.Image.Digest != digest {
		return author{}, fmt.Errorf("the signature is of %q", p.Critical.Image.Digest)
	}
	return by, nil
}
