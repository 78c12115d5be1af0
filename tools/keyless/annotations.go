package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"

	"github.com/deltarouter/deltarouter/internal/oci"
)

// The annotations of a signature in cosign's older format.
const (
	annotatedSignature   = "dev.cosignproject.cosign/signature"
	annotatedCertificate = "dev.sigstore.cosign/certificate"
	annotatedEntry       = "dev.sigstore.cosign/bundle"
)

// logEntry is the annotation with the entry of the transparency log.
type logEntry struct {
	Signed  []byte `json:"SignedEntryTimestamp"`
	Payload struct {
		Body    []byte `json:"body"`
		Time    int64  `json:"integratedTime"`
		Index   int64  `json:"logIndex"`
		LogName string `json:"logID"`
	} `json:"Payload"`
}

// fromAnnotations makes a bundle of a signature in the older format.
func fromAnnotations(a oci.Attached) (*bundle.Bundle, error) {
	signature, err := base64.StdEncoding.DecodeString(a.Annotations[annotatedSignature])
	if err != nil || len(signature) == 0 {
		return nil, errors.New("a signature is no base64")
	}
	certificate, _ := pem.Decode([]byte(a.Annotations[annotatedCertificate]))
	if certificate == nil {
		return nil, errors.New("a signature has no certificate: it was made with a key, see router plugin verify")
	}
	entry, err := entryOf(a.Annotations[annotatedEntry])
	if err != nil {
		return nil, err
	}
	mediaType, err := bundle.MediaTypeString("0.1")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(a.Content)
	return bundle.NewBundle(&protobundle.Bundle{
		MediaType: mediaType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{
				Certificates: []*protocommon.X509Certificate{{RawBytes: certificate.Bytes}},
			}},
			TlogEntries: []*protorekor.TransparencyLogEntry{entry},
		},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: signature,
		}},
	})
}

// entryOf reads the entry of the transparency log.
func entryOf(text string) (*protorekor.TransparencyLogEntry, error) {
	var entry logEntry
	var kind struct{ Kind, APIVersion string }
	if err := json.Unmarshal([]byte(text), &entry); err != nil || json.Unmarshal(entry.Payload.Body, &kind) != nil {
		return nil, errors.New("a signature has no entry of a transparency log")
	}
	log, err := hex.DecodeString(entry.Payload.LogName)
	if err != nil {
		return nil, errors.New("the entry of the transparency log names no log")
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: entry.Payload.Index, LogId: &protocommon.LogId{KeyId: log}, IntegratedTime: entry.Payload.Time,
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion},
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: entry.Signed},
		CanonicalizedBody: entry.Payload.Body,
	}, nil
}
