package module

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Verify is the configuration of the signature of a module.
type Verify struct {
	Key      string `yaml:"key,path" doc:"File of the public key of cosign, cosign.pub: ECDSA, Ed25519 or RSA. A module without a signature of the key is not loaded."`
	Identity string `yaml:"identity" doc:"Repository that was signed, as registry.example.com/team/dns, of a module that was copied from there. Empty: the one of module. any: signatures for all repositories are valid, and bundles, the default of cosign 3, which name none."`
}

// Registry is the configuration of the connection to a registry.
type Registry struct {
	Credentials string          `yaml:"credentials,secret" doc:"Docker configuration with the credentials, such as the key .dockerconfigjson of a Secret. Empty: $DOCKER_CONFIG/config.json or ~/.docker/config.json, if it exists."`
	PlainHTTP   bool            `yaml:"plainHTTP" doc:"Connect without TLS. A registry of this machine (localhost, 127.0.0.1) without tls is asked so anyway."`
	Timeout     time.Duration   `yaml:"timeout" default:"1m" min:"1s" max:"1h" doc:"Timeout of a manifest, and of a layer."`
	TLS         tlsfiles.Config `yaml:"tls" doc:"The certificates of the connection."`
}

// validateRef returns the mistakes of a source in a registry.
func (s *Source) validateRef(n config.Node) (problems config.Problems) {
	ref, err := oci.Parse(s.Module)
	switch {
	case err != nil:
		problems = append(problems, n.At("module").Problemf("%v", err))
	case ref.Digest == "" && s.SHA256 == "" && n.Policy().RequireDigests:
		problems = append(problems, n.At("module").Problemf("has no digest: the router was started with -require-digests; add @sha256:…, which router check -connect prints"))
	}
	if s.Verify.Identity != "" && s.Verify.Key == "" {
		problems = append(problems, n.At("verify").Problemf("key is missing"))
	}
	if s.Registry.PlainHTTP && !s.Registry.TLS.IsZero() {
		problems = append(problems, n.At("registry").At("plainHTTP").Problemf("is the opposite of tls: remove one of them"))
	}
	return problems
}

// registryError is the error of an answer of a registry, or of its content: the registry may have
// something else later, while the configuration stays as it is.
type registryError struct{ error }

func (e registryError) Unwrap() error { return e.error }

// fetch returns the module of a registry.
func (s *Source) fetch(ctx context.Context, limit int64, in plugins.Modules) (Content, []any, error) {
	ref, err := oci.Parse(s.Module)
	if err != nil {
		return Content{}, nil, err
	}
	repo, err := s.connect(ref, in)
	if err != nil {
		return Content{}, nil, err
	}
	defer repo.Close()
	digest, verified, err := s.digest(ctx, repo, ref)
	if err != nil {
		return Content{}, nil, err
	}
	if s.Verify.Key != "" {
		if err := s.verify(ctx, repo, digest); err != nil {
			return Content{}, nil, err
		}
	}
	m, err := repo.Module(ctx, digest, limit)
	if err != nil {
		return Content{}, nil, registryError{err}
	}
	var attrs []any
	if repo.Unkept != nil {
		attrs = []any{"err", fileerr.Explain(repo.Unkept)}
	}
	return Content{Name: ref.WithDigest(digest).String(), Bytes: m.Bytes, verified: verified}, attrs, nil
}

// connect returns the repository of the module, with the store of the router.
func (s *Source) connect(ref oci.Ref, in plugins.Modules) (*oci.Repository, error) {
	store := oci.Store{Dir: in.Dir, Also: oci.UserStore()}
	if store.Dir == "" {
		store = oci.Store{Dir: store.Also}
	}
	if in.Offline {
		return oci.Offline(ref, store), nil
	}
	o := oci.Options{
		PlainHTTP: s.Registry.PlainHTTP, Credentials: s.Registry.Credentials, Timeout: s.Registry.Timeout, RunHelpers: s.Node.Policy().AllowExec,
	}
	if !s.Registry.TLS.IsZero() {
		var err error
		if o.TLS, err = s.Registry.TLS.Load(); err != nil {
			return nil, fmt.Errorf("registry.tls: %w", err)
		}
	}
	return oci.Connect(ref, store, o)
}

// digest returns the digest of the manifest: from the reference, from the lock file, or, if a
// signature is required, from the registry. verified is the name in the lock file.
func (s *Source) digest(ctx context.Context, repo *oci.Repository, ref oci.Ref) (digest, verified string, err error) {
	if ref.Digest != "" {
		return ref.Digest, "", nil
	}
	lock, err := lockfile.Read(s.Node.File(lockfile.Name))
	if err != nil {
		return "", "", err
	}
	if e := lock.Find(ref); e != nil {
		return e.Digest, e.Verified, nil
	}
	found, err := repo.Resolve(ctx, ref.Tagged())
	switch {
	case (s.Verify.Key != "" || s.SHA256 != "") && err == nil:
		return found, "", nil
	case s.Verify.Key != "" || s.SHA256 != "":
		return "", "", registryError{err}
	case err != nil:
		return "", "", fmt.Errorf("it has a tag and no digest, so its content could change: add @sha256:…, which router check -connect prints, or verify, or an entry in %s", lockfile.Name)
	}
	return "", "", fmt.Errorf("it has a tag and no digest, so its content could change: write %s, or add verify, or an entry in %s", ref.WithDigest(found), lockfile.Name)
}

// maxKey bounds the file of a key.
const maxKey = 64 << 10

func (s *Source) verify(ctx context.Context, repo *oci.Repository, digest string) error {
	f, err := os.Open(s.Verify.Key)
	if err != nil {
		return fmt.Errorf("verify.key: %s cannot be read: %w", s.Verify.Key, fileerr.Cause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return fmt.Errorf("verify.key: %s cannot be read: %w", s.Verify.Key, fileerr.Cause(err))
	}
	key, err := oci.ParseKey(text)
	if err != nil {
		return fmt.Errorf("verify.key: %s: %w", s.Verify.Key, err)
	}
	if err := repo.Verify(ctx, digest, key, s.Verify.Identity); err != nil {
		return registryError{err}
	}
	return nil
}

// explained adds the remedy to an error about a module that is not there.
func (s *Source) explained(err error) error {
	if errors.Is(err, oci.ErrNotCached) {
		return fmt.Errorf("%w: router plugin pull %s fetches it", err, s.Module)
	}
	return err
}
