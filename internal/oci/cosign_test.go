package oci_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/oci"
)

// signers are the kinds of keys that cosign uses.
func signers(t *testing.T) map[string]crypto.Signer {
	t.Helper()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]crypto.Signer{"ECDSA": ec, "Ed25519": ed, "RSA": rs}
}

func publicKey(t testing.TB, s crypto.Signer) oci.Key {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, err := oci.ParseKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signature adds the signature of a digest, as cosign sign -key does.
func (r *registry) signature(t *testing.T, s crypto.Signer, of, digest, identity string) {
	t.Helper()
	text, err := json.Marshal(object{"critical": object{
		"type": "cosign container image signature", "image": object{"docker-manifest-digest": digest}, "identity": object{"docker-reference": identity},
	}, "optional": nil})
	if err != nil {
		t.Fatal(err)
	}
	signed, hash := text, crypto.Hash(0)
	if _, ok := s.(ed25519.PrivateKey); !ok {
		sum := sha256.Sum256(text)
		signed, hash = sum[:], crypto.SHA256
	}
	signature, err := s.Sign(rand.Reader, signed, hash)
	if err != nil {
		t.Fatal(err)
	}
	layer := r.blob("application/vnd.dev.cosign.simplesigning.v1+json", text)
	layer["annotations"] = object{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)}
	r.manifest(t, object{"layers": []object{layer}}, oci.SignatureTag(of))
}

// TestVerify: a module has a signature of the key, for its digest and its repository. The signature
// is kept like the module.
func TestVerify(t *testing.T) {
	// Guarantee: module-pinned
	t.Parallel()
	for name, s := range signers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, dir := serve(t), t.TempDir()
			digest := r.artifact(t, module)
			identity := r.host() + "/team/dns"
			check := func(key oci.Key, identity, want string) {
				t.Helper()
				err := r.connect(t, dir, oci.Options{}).Verify(t.Context(), digest, key, identity)
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("the error is %v, want %q", err, want)
				}
			}
			key := publicKey(t, s)
			check(key, "", "it is not signed")
			r.signature(t, s, digest, digestOf([]byte("another module")), identity)
			check(key, "", "the signature is of")
			r.signature(t, s, digest, digest, "registry.example.com/other")
			check(key, "", "the signature is for the repository")
			check(key, "registry.example.com/other", "")
			r.signature(t, s, digest, digest, identity)
			check(publicKey(t, signers(t)[name]), "", "by another key")
			check(key, "", "")
			r.Close()
			check(key, "", "")
		})
	}
}

// TestKeys: a file that is no public key is rejected with the reason.
func TestKeys(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // it is too small on purpose
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(small.Public())
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"": "no PEM file",
		string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY"})): "name cosign.pub",
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})): "cannot be read",
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})):         "fewer than 2048",
	} {
		if _, err := oci.ParseKey([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
