package oci_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/oci"
)

const (
	bundleType = "application/vnd.dev.sigstore.bundle"
	bundle3    = bundleType + ".v0.3+json"
)

// TestReferrers: the artifacts that refer to a digest are found by the API, and by the tag of
// registries without it.
func TestReferrers(t *testing.T) {
	t.Parallel()
	for _, api := range []bool{true, false} {
		t.Run(fmt.Sprint("API ", api), func(t *testing.T) {
			t.Parallel()
			r := serve(t)
			digest := r.artifact(t, module)
			if none, err := r.connect(t, "", oci.Options{}).Referrers(t.Context(), digest, bundleType); err != nil || len(none) != 0 {
				t.Fatalf("without referrers: %v, %v", none, err)
			}
			var list []object
			for text, artifactType := range map[string]string{"one": bundle3, "two": "", "three": "application/vnd.oci.empty.v1+json", "other": "text/sbom"} {
				layer := r.blob(bundle3, []byte(text))
				layer["annotations"] = object{"of": text}
				of := r.manifest(t, object{"artifactType": artifactType, "layers": []object{r.blob("text/plain", []byte("x")), layer}})
				list = append(list, object{"mediaType": ociManifest, "digest": of, "size": 1, "artifactType": artifactType})
			}
			index := r.manifest(t, object{"mediaType": ociIndex, "manifests": list})
			at := "manifests/" + strings.Replace(digest, ":", "-", 1)
			if api {
				at = "referrers/" + digest
			}
			r.content[at], r.types[at] = r.content["manifests/"+index], ociIndex
			found, err := r.connect(t, "", oci.Options{}).Referrers(t.Context(), digest, bundleType)
			got := map[string]bool{}
			for _, f := range found {
				got[string(f.Content)] = f.Annotations["of"] == string(f.Content)
			}
			if err != nil || len(found) != 3 || !got["one"] || !got["two"] || !got["three"] {
				t.Errorf("the referrers are %v, %v", got, err)
			}
		})
	}
}

// TestHostileReferrers: a list of referrers is bounded, and its digests are checked.
func TestHostileReferrers(t *testing.T) {
	t.Parallel()
	entry := object{"mediaType": ociManifest, "digest": digestOf(module), "size": 1}
	many := make([]object, 101)
	for i := range many {
		many[i] = entry
	}
	for name, c := range map[string]struct {
		list []object
		want string
	}{
		"too many":    {many, "more than 100"},
		"no digest":   {[]object{{"mediaType": ociManifest, "digest": "sha256:../../x", "size": 1}}, "a digest that is none"},
		"not there":   {[]object{entry}, "does not have it"},
		"its own tag": {[]object{{"mediaType": ociManifest, "digest": "", "size": 1}}, "a digest that is none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serve(t)
			digest := r.artifact(t, []byte("another"))
			index := r.manifest(t, object{"mediaType": ociIndex, "manifests": c.list})
			r.content["referrers/"+digest], r.types["referrers/"+digest] = r.content["manifests/"+index], ociIndex
			if _, err := r.connect(t, "", oci.Options{}).Referrers(t.Context(), digest, bundleType); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
	r := serve(t)
	r.instead = status(http.StatusBadGateway)
	if _, err := r.connect(t, "", oci.Options{}).Referrers(t.Context(), digestOf(module), bundleType); err == nil || !strings.Contains(err.Error(), "HTTP 502") {
		t.Errorf("the error is %v", err)
	}
}

// TestSignatures: the signed texts are those at the tag of the digest.
func TestSignatures(t *testing.T) {
	t.Parallel()
	r := serve(t)
	digest := r.artifact(t, module)
	if none, err := r.connect(t, "", oci.Options{}).Signatures(t.Context(), digest); err != nil || len(none) != 0 {
		t.Fatalf("without signatures: %v, %v", none, err)
	}
	r.signature(t, signers(t)["ECDSA"], digest, digest, "x/y")
	found, err := r.connect(t, "", oci.Options{}).Signatures(t.Context(), digest)
	if err != nil || len(found) != 1 || !strings.Contains(string(found[0].Content), digest) || found[0].Annotations["dev.cosignproject.cosign/signature"] == "" {
		t.Errorf("the signatures are %v, %v", found, err)
	}
}
