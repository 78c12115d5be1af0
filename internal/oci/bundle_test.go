package oci_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/oci"
)

// bundleOf returns a bundle as cosign 3 writes it for sign --key.
func bundleOf(t testing.TB, s crypto.Signer, predicateType, digest string) []byte {
	t.Helper()
	const payloadType = "application/vnd.in-toto+json"
	statement, err := json.Marshal(object{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": predicateType, "predicate": object{},
		"subject": []object{{"digest": object{"sha256": strings.TrimPrefix(digest, "sha256:")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	signed, hash := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(statement), statement), crypto.Hash(0)
	if _, ok := s.(ed25519.PrivateKey); !ok {
		sum := sha256.Sum256(signed)
		signed, hash = sum[:], crypto.SHA256
	}
	signature, err := s.Sign(rand.Reader, signed, hash)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(object{
		"mediaType": bundle3, "verificationMaterial": object{"publicKey": object{"hint": "x"}},
		"dsseEnvelope": object{
			"payload": base64.StdEncoding.EncodeToString(statement), "payloadType": payloadType,
			"signatures": []object{{"sig": base64.StdEncoding.EncodeToString(signature)}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// refer makes artifacts with bundles refer to a digest.
func (r *registry) refer(t *testing.T, digest string, bundles ...[]byte) {
	t.Helper()
	list := []object{{"mediaType": ociManifest, "digest": digest, "size": 1, "artifactType": "text/sbom"}}
	for _, b := range bundles {
		of := r.manifest(t, object{"artifactType": bundle3, "layers": []object{r.blob(bundle3, b)}})
		list = append(list, object{"mediaType": ociManifest, "digest": of, "size": 1, "artifactType": bundle3})
	}
	index := r.manifest(t, object{"mediaType": ociIndex, "manifests": list})
	r.content["referrers/"+digest], r.types["referrers/"+digest] = r.content["manifests/"+index], ociIndex
}

// TestVerifyBundle: a bundle of the key is a signature for its digest, if the configuration allows
// any repository. It is kept like the module.
func TestVerifyBundle(t *testing.T) {
	// Guarantee: module-pinned
	t.Parallel()
	for name, s := range signers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, dir := serve(t), t.TempDir()
			digest := r.artifact(t, module)
			check := func(dir, identity, want string) {
				t.Helper()
				err := r.connect(t, dir, oci.Options{}).Verify(t.Context(), digest, publicKey(t, s), identity)
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("the error is %v, want %q", err, want)
				}
			}
			good, other := bundleOf(t, s, oci.CosignSigned, digest), digestOf([]byte("another module"))
			for want, b := range map[string][]byte{
				"by another key":        bundleOf(t, signers(t)[name], oci.CosignSigned, digest),
				"none of cosign sign":   bundleOf(t, s, "https://example.com/scan/v1", digest),
				"not for " + digest:     bundleOf(t, s, oci.CosignSigned, other),
				"cannot be read":        []byte("[]"),
				"no envelope":           []byte(`{"messageSignature":{}}`),
				"a bundle is by anothe": []byte(strings.Replace(string(good), `"sig":"`, `"sig":"AAAA`, 1)),
			} {
				r.refer(t, digest, b)
				check("", oci.AnyRepository, want)
				check("", "", "it is not signed")
			}
			r.refer(t, digest, []byte("{}"), good)
			check("", "", "names no repository")
			check("", "registry.example.com/other", "names no repository")
			check(dir, oci.AnyRepository, "")
			r.Close()
			check(dir, oci.AnyRepository, "")
			check(t.TempDir(), oci.AnyRepository, "not available")
		})
	}
}

// TestAnyRepository: the identity any takes signatures for all repositories, too.
func TestAnyRepository(t *testing.T) {
	t.Parallel()
	s := signers(t)["ECDSA"]
	r := serve(t)
	digest := r.artifact(t, module)
	r.signature(t, s, digest, digest, "registry.example.com/other")
	if err := r.connect(t, "", oci.Options{}).Verify(t.Context(), digest, publicKey(t, s), oci.AnyRepository); err != nil {
		t.Error(err)
	}
	r.instead = func(w http.ResponseWriter, req *http.Request) bool {
		return strings.Contains(req.URL.Path, "/referrers/") && status(http.StatusBadGateway)(w, req)
	}
	if err := r.connect(t, "", oci.Options{}).Verify(t.Context(), digest, publicKey(t, s), ""); err == nil || !strings.Contains(err.Error(), "the signature is for the repository") {
		t.Errorf("the error is %v", err)
	}
}

// FuzzBundle: only the statement that was signed is accepted.
func FuzzBundle(f *testing.F) {
	_, s, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	digest := digestOf(module)
	good := bundleOf(f, s, oci.CosignSigned, digest)
	f.Add(good)
	f.Add(bundleOf(f, s, oci.CosignSigned, digestOf(nil)))
	f.Add([]byte(`{"dsseEnvelope":{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[{"sig":""}]}}`))
	var want struct{ DSSEEnvelope struct{ Payload []byte } }
	if err := json.Unmarshal(good, &want); err != nil {
		f.Fatal(err)
	}
	key := publicKey(f, s)
	f.Fuzz(func(t *testing.T, text []byte) {
		if oci.VerifyBundle(text, digest, key) != nil {
			return
		}
		got := want
		if err := json.Unmarshal(text, &got); err != nil || string(got.DSSEEnvelope.Payload) != string(want.DSSEEnvelope.Payload) {
			t.Errorf("accepted: %s", text)
		}
	})
}
