package plugincmd_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
	"github.com/deltarouter/deltarouter/test/must"
)

// put uploads content to a registry.
func put(t *testing.T, url, mediaType, content string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(content))
	must.Succeed(t, err)
	req.Header.Set("Content-Type", mediaType)
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	must.Succeed(t, resp.Body.Close())
}

// sign signs a reference with a digest as cosign sign --key does, and returns the file of the key.
func sign(t *testing.T, ref oci.Ref) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	text := fmt.Sprintf(`{"critical":{"type":"cosign container image signature","image":{"docker-manifest-digest":%q},"identity":{"docker-reference":%q}}}`,
		ref.Digest, ref.Name())
	sum := sha256.Sum256([]byte(text))
	digest, of := "sha256:"+hex.EncodeToString(sum[:]), "http://"+ref.Registry+"/v2/"+ref.Repository
	put(t, of+"/blobs/"+digest, "application/octet-stream", text)
	put(t, of+"/manifests/"+oci.SignatureTag(ref.Digest), "application/vnd.oci.image.manifest.v1+json", fmt.Sprintf(
		`{"schemaVersion":2,"layers":[{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json","digest":%q,"size":%d,"annotations":{"dev.cosignproject.cosign/signature":%q}}]}`,
		digest, len(text), base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))))
	der, err := x509.MarshalPKIXPublicKey(public)
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "cosign.pub")
	must.Succeed(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	return file
}

// TestVerifyLocks: a verified tag gets an entry in plugins.lock, and a tag that is not verified
// gets none.
func TestVerifyLocks(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, at := t.TempDir(), "oci://"+registry(t)+"/team/dns:1"
	file, lock := filepath.Join(dir, "dns.wasm"), filepath.Join(dir, lockfile.Name)
	must.Succeed(t, os.WriteFile(file, []byte(module), 0o600))
	code, out := run(t, "push", file, at)
	ref, err := oci.Parse(strings.TrimSpace(out))
	if code != 0 || err != nil {
		t.Fatalf("push: %d, %s, %v", code, out, err)
	}
	key, other := sign(t, ref), sign(t, ref.WithDigest("sha256:"+strings.Repeat("0", 64)))
	if code, out := run(t, "verify", "-key", other, "-lock", lock, at); code == 0 || !strings.Contains(out, "by another key") {
		t.Errorf("another key: %d, %s", code, out)
	}
	if _, err := os.Stat(lock); err == nil {
		t.Error("a tag that is not verified is locked")
	}
	if code, out := run(t, "verify", "-key", key, "-lock", lock, ref.WithDigest("").Name()); code == 0 {
		t.Errorf("no reference: %d, %s", code, out)
	}
	untagged := ref
	untagged.Tag = ""
	if code, out := run(t, "verify", "-key", key, "-lock", lock, untagged.String()); code == 0 || !strings.Contains(out, "-lock pins a tag") {
		t.Errorf("no tag: %d, %s", code, out)
	}
	if code, out := run(t, "verify", "-key", key, "-lock", lock, at); code != 0 || !strings.Contains(out, "signature  valid") {
		t.Fatalf("verify: %d, %s", code, out)
	}
	f, err := lockfile.Read(lock)
	must.Succeed(t, err)
	if e := f.Find(ref); e == nil || e.Digest != ref.Digest || !strings.HasPrefix(e.Verified, "cosign, key Ed25519 sha256:") {
		t.Errorf("the entry is %+v", e)
	}
}
