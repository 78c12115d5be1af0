package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
	"github.com/deltarouter/deltarouter/test/must"
)

const (
	me     = "me@example.com"
	issuer = "https://issuer.example.com"
)

// sigstore is an instance of Sigstore in this process, with the file of its root of trust.
type sigstore struct {
	*ca.VirtualSigstore

	root string
}

func newSigstore(t *testing.T) sigstore {
	t.Helper()
	s, err := ca.NewVirtualSigstore()
	must.Succeed(t, err)
	logs := s.RekorLogs()
	for name, log := range logs {
		log.ID, err = hex.DecodeString(name) // the test library has the digits themselves
		must.Succeed(t, err)
	}
	// without a log of certificates: the certificates of the library are in none
	roots, err := root.NewTrustedRoot(root.TrustedRootMediaType01, s.FulcioCertificateAuthorities(), nil, s.TimestampingAuthorities(), logs)
	must.Succeed(t, err)
	text, err := roots.MarshalJSON()
	must.Succeed(t, err)
	return sigstore{s, file(t, "trusted_root.json", string(text))}
}

// statement is the statement of cosign sign about a digest.
func statement(predicateType, digest string) []byte {
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`,
		strings.TrimPrefix(digest, "sha256:"), predicateType)
}

// bundle returns the bundle of a signed statement, as cosign 3 writes it.
func (s sigstore) bundle(t *testing.T, identity string, text []byte) []byte {
	t.Helper()
	e, err := s.AttestAtTime(identity, issuer, text, time.Now().Add(5*time.Minute), true)
	must.Succeed(t, err)
	content, err := e.VerificationContent()
	must.Succeed(t, err)
	signature, err := e.SignatureContent()
	must.Succeed(t, err)
	entries, err := e.TlogEntries()
	must.Succeed(t, err)
	times, err := e.Timestamps()
	must.Succeed(t, err)
	entry := entries[0].TransparencyLogEntry()
	entry.KindVersion = &protorekor.KindVersion{Kind: "dsse", Version: "0.0.1"}
	b, err := protojson.Marshal(&protobundle.Bundle{
		MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content:                   &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw}},
			TlogEntries:               []*protorekor.TransparencyLogEntry{entry},
			TimestampVerificationData: &protobundle.TimestampVerificationData{Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: times[0]}}},
		},
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: envelope(t, signature.EnvelopeContent().RawEnvelope())},
	})
	must.Succeed(t, err)
	return b
}

// without returns a bundle without its entry of the transparency log.
func without(t *testing.T, text []byte) []byte {
	t.Helper()
	var b protobundle.Bundle
	must.Succeed(t, protojson.Unmarshal(text, &b))
	b.VerificationMaterial.TlogEntries = nil
	text, err := protojson.Marshal(&b)
	must.Succeed(t, err)
	return text
}

func envelope(t *testing.T, e *dsse.Envelope) *protodsse.Envelope {
	t.Helper()
	text, err := e.DecodeB64Payload()
	must.Succeed(t, err)
	sig, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	must.Succeed(t, err)
	return &protodsse.Envelope{Payload: text, PayloadType: e.PayloadType, Signatures: []*protodsse.Signature{{Sig: sig}}}
}

// annotated returns a signature in the older format.
func (s sigstore) annotated(t *testing.T, identity, digest string) (text []byte, annotations map[string]string) {
	t.Helper()
	text = fmt.Appendf(nil, `{"critical":{"type":"cosign container image signature","image":{"docker-manifest-digest":%q}}}`, digest)
	e, err := s.Sign(identity, issuer, text)
	must.Succeed(t, err)
	content, err := e.VerificationContent()
	must.Succeed(t, err)
	signature, err := e.SignatureContent()
	must.Succeed(t, err)
	entries, err := e.TlogEntries()
	must.Succeed(t, err)
	entry := entries[0].TransparencyLogEntry()
	p := tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(entry.GetCanonicalizedBody()), IntegratedTime: entry.GetIntegratedTime(),
		LogIndex: entry.GetLogIndex(), LogID: hex.EncodeToString(entry.GetLogId().GetKeyId()),
	}
	signed, err := s.RekorSignPayload(p)
	must.Succeed(t, err)
	log, err := json.Marshal(map[string]any{"SignedEntryTimestamp": signed, "Payload": p})
	must.Succeed(t, err)
	return text, map[string]string{
		annotatedSignature:   base64.StdEncoding.EncodeToString(signature.Signature()),
		annotatedCertificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content.Certificate().Raw})),
		annotatedEntry:       string(log),
	}
}

// uploads puts content and manifests into the repository team/dns of a registry.
type uploads struct{ host string }

func (u uploads) send(t *testing.T, method, url, mediaType string, content []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(content))
	must.Succeed(t, err)
	req.Header.Set("Content-Type", mediaType)
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	must.Succeed(t, resp.Body.Close())
	if resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: %s", method, url, resp.Status)
	}
	return resp
}

// attach uploads a manifest with one layer to a tag, and returns its digest.
func (u uploads) attach(t *testing.T, tag, mediaType string, content []byte, annotations map[string]string) string {
	t.Helper()
	of := "http://" + u.host + "/v2/team/dns"
	for _, blob := range [][]byte{content, []byte("{}")} {
		at := u.send(t, http.MethodPost, of+"/blobs/uploads/", "", nil).Header.Get("Location")
		u.send(t, http.MethodPut, at+"&digest="+digestOf(blob), "application/octet-stream", blob)
	}
	text, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": mediaType,
		"config": map[string]any{"mediaType": "application/vnd.oci.empty.v1+json", "digest": digestOf([]byte("{}")), "size": 2},
		"layers": []any{map[string]any{"mediaType": mediaType, "digest": digestOf(content), "size": len(content), "annotations": annotations}},
	})
	must.Succeed(t, err)
	u.send(t, http.MethodPut, of+"/manifests/"+tag, "application/vnd.oci.image.manifest.v1+json", text)
	return digestOf(text)
}

// refer makes the list of the manifests that refer to a digest, for registries without the API.
func (u uploads) refer(t *testing.T, digest, to string) {
	t.Helper()
	text := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":1,"artifactType":"application/vnd.dev.sigstore.bundle.v0.3+json"}]}`, digest)
	u.send(t, http.MethodPut, "http://"+u.host+"/v2/team/dns/manifests/"+strings.Replace(to, ":", "-", 1), "application/vnd.oci.image.index.v1+json", text)
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// signed pushes a module, and attaches a signature to it.
type signed struct {
	host, digest string
}

func push(t *testing.T) signed {
	t.Helper()
	host := registry(t, "")
	digest, err := connect(t, host, "1", file(t, "config.json", "{}")).Push(t.Context(), module, nil)
	must.Succeed(t, err)
	return signed{host, digest}
}

func (s signed) bundle(t *testing.T, text []byte) {
	t.Helper()
	u := uploads{s.host}
	u.refer(t, u.attach(t, "one", "application/vnd.dev.sigstore.bundle.v0.3+json", text, nil), s.digest)
}

func (s signed) annotated(t *testing.T, text []byte, annotations map[string]string) {
	t.Helper()
	uploads{s.host}.attach(t, oci.SignatureTag(s.digest), "application/vnd.dev.cosign.simplesigning.v1+json", text, annotations)
}

// TestKeyless: a signature of the identity, for the digest, by a trusted instance of Sigstore pins
// the tag. No other signature does.
func TestKeyless(t *testing.T) {
	// Guarantee: module-keyless
	s, another := newSigstore(t), newSigstore(t)
	other := digestOf([]byte("another module"))
	for name, c := range map[string]struct {
		attach func(m signed)
		args   []string
		want   string // of the error; empty: it is valid
	}{
		"bundle":                        {func(m signed) { m.bundle(t, s.bundle(t, me, statement(oci.CosignSigned, m.digest))) }, nil, ""},
		"annotations":                   {func(m signed) { text, a := s.annotated(t, me, m.digest); m.annotated(t, text, a) }, nil, ""},
		"expression":                    {func(m signed) { m.bundle(t, s.bundle(t, me, statement(oci.CosignSigned, m.digest))) }, []string{"-identity", "", "-identity-regexp", ".*@example[.]com"}, ""},
		"part of a name":                {func(m signed) { m.bundle(t, s.bundle(t, me, statement(oci.CosignSigned, m.digest))) }, []string{"-identity", "", "-identity-regexp", "me"}, "expected SAN value to match"},
		"no signature":                  {func(signed) {}, nil, "there is none"},
		"another identity":              {func(m signed) { m.bundle(t, s.bundle(t, "you@example.com", statement(oci.CosignSigned, m.digest))) }, nil, `got "you@example.com"`},
		"another issuer":                {func(m signed) { m.bundle(t, s.bundle(t, me, statement(oci.CosignSigned, m.digest))) }, []string{"-issuer", "https://other.example.com"}, "expected issuer value"},
		"another digest":                {func(m signed) { m.bundle(t, s.bundle(t, me, statement(oci.CosignSigned, other))) }, nil, "does not match"},
		"another instance":              {func(m signed) { m.bundle(t, another.bundle(t, me, statement(oci.CosignSigned, m.digest))) }, nil, "failed to verify"},
		"another statement":             {func(m signed) { m.bundle(t, s.bundle(t, me, statement("https://example.com/scan/v1", m.digest))) }, nil, "https://example.com/scan/v1"},
		"no entry of a log":             {func(m signed) { m.bundle(t, without(t, s.bundle(t, me, statement(oci.CosignSigned, m.digest)))) }, nil, "log inclusion"},
		"no bundle":                     {func(m signed) { m.bundle(t, []byte("[]")) }, nil, "a bundle cannot be read"},
		"annotations of another digest": {func(m signed) { text, a := s.annotated(t, me, other); m.annotated(t, text, a) }, nil, "the signature is of"},
		"annotations of another text": {func(m signed) {
			_, a := s.annotated(t, me, m.digest)
			text, _ := s.annotated(t, me, other)
			m.annotated(t, text, a)
		}, nil, "failed to verify"},
		"a key": {func(m signed) { m.annotated(t, []byte("{}"), map[string]string{annotatedSignature: "eA=="}) }, nil, "made with a key"},
		"no log": {func(m signed) {
			text, a := s.annotated(t, me, m.digest)
			delete(a, annotatedEntry)
			m.annotated(t, text, a)
		}, nil, "no entry of a transparency log"},
	} {
		t.Run(name, func(t *testing.T) {
			m := push(t)
			c.attach(m)
			lock := filepath.Join(t.TempDir(), lockfile.Name)
			at := "oci://" + m.host + "/team/dns:1"
			args := append([]string{"-identity", me, "-issuer", issuer, "-trusted-root", s.root, "-lock", lock, "-credentials", file(t, "config.json", "{}")}, c.args...)
			out, err := keyless(t, append(args, at)...)
			f, failed := lockfile.Read(lock)
			must.Succeed(t, failed)
			ref, failed := oci.Parse(at)
			must.Succeed(t, failed)
			entry := f.Find(ref)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || entry != nil || out != "" {
					t.Errorf("the error is %v, want %q; the entry %+v", err, c.want, entry)
				}
				return
			}
			if err != nil || entry == nil || entry.Digest != m.digest || entry.Verified != me+", confirmed by "+issuer {
				t.Fatalf("the entry is %+v, %v", entry, err)
			}
			if want := "module     " + at + "@" + m.digest + "\nidentity   " + me + "\nissuer     " + issuer + "\n"; out != want {
				t.Errorf("the output is\n%s\nwant\n%s", out, want)
			}
		})
	}
}
