package oci

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// Options are the settings of the connection to a registry.
type Options struct {
	PlainHTTP   bool        // registries of this machine are asked without TLS anyway, unless TLS is set
	TLS         *tls.Config // nil: the certificate authorities of the system
	Credentials string      // a Docker configuration; empty: that of the user
	RunHelpers  bool        // credential helpers that the Docker configuration names are run
	Timeout     time.Duration
}

// The bounds of content other than modules.
const (
	maxManifest = 1 << 20
	maxParts    = 100 // layers of a manifest, or manifests of an index
)

// Repository is the connection to a repository, with a store of its content. The caller closes it.
type Repository struct {
	ref     Ref
	store   Store
	timeout time.Duration
	remote  *remote.Repository // nil: only the store is used
	http    *http.Transport
	keys    *keyring
	// Unkept is the first error of the store. Content that cannot be kept is used nevertheless.
	Unkept error
}

// Offline returns a repository without a connection.
func Offline(ref Ref, store Store) *Repository { return &Repository{ref: ref, store: store} }

// Connect returns a repository that is asked for what the store does not have. It sends no request
// yet.
func Connect(ref Ref, store Store, o Options) (*Repository, error) {
	keys, err := newKeyring(o.Credentials, o.RunHelpers)
	if err != nil {
		return nil, err
	}
	r := &Repository{ref: ref, store: store, timeout: o.Timeout, keys: keys}
	of := registry.Reference{Registry: ref.Registry, Repository: ref.Repository}
	plain := o.PlainHTTP || ref.isLoopback() && o.TLS == nil
	host, port := of.Host(), "443"
	if plain {
		port = "80"
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(hostOf(host), port)
	}
	g := newGuard(host)
	r.http = &http.Transport{
		Proxy: g.proxy, DialContext: g.dial, TLSClientConfig: o.TLS, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10, MaxConnsPerHost: 4,
		DisableCompression: true, // a small answer must not become a large one
	}
	r.remote = &remote.Repository{
		Reference: of, PlainHTTP: plain, MaxMetadataBytes: maxManifest,
		Client: &auth.Client{
			Client: &http.Client{Transport: r.http, CheckRedirect: g.redirect}, Cache: auth.NewCache(), Credential: keys.of,
			Header: http.Header{"User-Agent": {"deltarouter"}},
		},
		ManifestMediaTypes: []string{
			ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, dockerManifest, dockerList,
		},
	}
	return r, nil
}

// Close closes the connections.
func (r *Repository) Close() {
	if r.http != nil {
		r.http.CloseIdleConnections()
	}
}

// bounded returns a context for the requests of one operation.
func (r *Repository) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.timeout)
}

// Resolve returns the present digest of a tag. If the registry is unavailable, or refuses the
// credentials, it is the last known one.
func (r *Repository) Resolve(ctx context.Context, tag string) (string, error) {
	of := Ref{Registry: r.ref.Registry, Repository: r.ref.Repository, Tag: tag}
	content, err := r.manifest(ctx, tag)
	if err != nil {
		known, ok := r.store.resolved(of)
		if ok && (errors.Is(err, ErrUnavailable) || errors.Is(err, ErrRefused) || errors.Is(err, ErrNotCached)) {
			return known, nil
		}
		return "", err
	}
	found := digestOf(content)
	r.kept(r.store.put(found, content))
	r.kept(r.store.setResolved(of, found))
	return found, nil
}

// kept remembers the first error of the store.
func (r *Repository) kept(err error) {
	if r.Unkept == nil {
		r.Unkept = err
	}
}

// manifest requests a manifest by its tag or digest.
func (r *Repository) manifest(ctx context.Context, reference string) ([]byte, error) {
	if r.remote == nil {
		return nil, ErrNotCached
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	found, body, err := r.remote.Manifests().FetchReference(ctx, reference)
	if err != nil {
		return nil, r.worded(ctx, err)
	}
	defer body.Close()
	content, err := readAll(body, maxManifest)
	if err != nil {
		return nil, r.worded(ctx, err)
	}
	want := string(found.Digest)
	if isDigest(reference) {
		want = reference
	}
	if got := digestOf(content); got != want {
		return nil, fmt.Errorf("%w: the registry sends a manifest with the digest %s for %s", errDigest, got, want)
	}
	return content, nil
}

// readAll reads at most limit bytes.
func readAll(from io.Reader, limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(content)) > limit {
		return nil, errTooLarge
	}
	return content, err
}

// manifestBy returns the manifest with a digest, from the store if it is there.
func (r *Repository) manifestBy(ctx context.Context, digest string) (*manifest, error) {
	content, ok := r.store.get(digest, maxManifest)
	if !ok {
		var err error
		if content, err = r.manifest(ctx, digest); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", digest, err)
		}
		r.kept(r.store.put(digest, content))
	}
	var m manifest
	if err := json.Unmarshal(content, &m); err != nil {
		return nil, fmt.Errorf("manifest %s is no JSON of a manifest", digest)
	}
	if len(m.Layers) > maxParts || len(m.Manifests) > maxParts {
		return nil, fmt.Errorf("manifest %s has more than %d parts", digest, maxParts)
	}
	return &m, nil
}

// blob returns the content of a descriptor, of at most limit bytes, from the store if it is there.
func (r *Repository) blob(ctx context.Context, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if !isDigest(string(d.Digest)) {
		return nil, errors.New("its digest is not sha256: and 64 hexadecimal digits")
	}
	if d.Size < 0 || d.Size > limit {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", errTooLarge, d.Size, limit)
	}
	if content, ok := r.store.get(string(d.Digest), limit); ok {
		return content, nil
	}
	if r.remote == nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, ErrNotCached)
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	body, err := r.remote.Blobs().Fetch(ctx, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, r.worded(ctx, err))
	}
	defer body.Close()
	content, err := readAll(body, d.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, r.worded(ctx, err))
	}
	if got := digestOf(content); got != string(d.Digest) {
		return nil, fmt.Errorf("%w: the registry sends %s for %s", errDigest, got, d.Digest)
	}
	r.kept(r.store.put(string(d.Digest), content))
	return content, nil
}

// upload pushes content unless the registry has it.
func (r *Repository) upload(ctx context.Context, content []byte, mediaType string) (ocispec.Descriptor, error) {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.Digest(digestOf(content)), Size: int64(len(content))}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	there, err := r.remote.Blobs().Exists(ctx, d)
	if err == nil && !there {
		err = r.remote.Blobs().Push(ctx, d, bytes.NewReader(content))
	}
	if err != nil {
		return d, r.worded(ctx, err)
	}
	return d, nil
}
