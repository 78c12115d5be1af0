package module

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Source is the part of the configuration of a handler that says where its module comes from. A
// kind has it as a field with the tag `yaml:",inline"`.
type Source struct {
	Module   string      `yaml:"module,required,module" doc:"File of the WebAssembly module, or a module of a registry: oci://registry.example.com/team/dns@sha256:…. With a tag in place of the digest, it needs verify, sha256, or an entry in the file plugins.lock beside the configuration."`
	SHA256   string      `yaml:"sha256" doc:"SHA-256 of the module, in hexadecimal digits. A module with another content is not loaded. Required with the flag -require-digests, unless module has a digest."`
	Verify   Verify      `yaml:"verify" doc:"The signature that the module of a registry must have."`
	Registry Registry    `yaml:"registry" doc:"The connection to the registry of the module."`
	Node     config.Node `yaml:",self"`
}

// Content is a module.
type Content struct {
	Name   string // the path of its file, or its reference
	Bytes  []byte
	Digest string // SHA-256 in hexadecimal digits

	verified string // by whom, if the lock file says so
}

// Validate returns the mistakes of the source. The Validate of a kind calls it.
func (s *Source) Validate(n config.Node) config.Problems {
	var problems config.Problems
	scheme, _, isURL := strings.Cut(s.Module, "://")
	registry := oci.IsRef(s.Module)
	switch {
	case registry:
		problems = s.validateRef(n)
	case isURL:
		problems = append(problems, n.At("module").Problemf("%s:// is not supported: give the path of a file, or oci://…", scheme))
	case !n.At("verify").IsZero():
		problems = append(problems, n.At("verify").Problemf("is for modules of registries (oci://…): remove it, or pin the file with sha256"))
	}
	if sum, err := hex.DecodeString(s.SHA256); s.SHA256 != "" && (err != nil || len(sum) != sha256.Size) {
		problems = append(problems, n.At("sha256").Problemf("must be %d hexadecimal digits, as sha256sum prints them", 2*sha256.Size))
	} else if s.SHA256 == "" && !registry && n.Policy().RequireDigests {
		problems = append(problems, n.Problemf("sha256 is missing: the router was started with -require-digests; write what sha256sum prints for the module"))
	}
	return problems
}

// Files returns the files that the source consists of, for [plugins.FileReader].
func (s *Source) Files() []string {
	if !oci.IsRef(s.Module) {
		return []string{s.Module}
	}
	files := []string{s.Node.File(lockfile.Name)}
	if s.Verify.Key != "" {
		files = append(files, s.Verify.Key)
	}
	return files
}

// firstWait bounds the time that the start of the router waits for a registry.
const firstWait = 10 * time.Second

// Open calls open with the module, which has at most limit bytes, and returns its handler. It adds
// the name of the module to its error. open may be called later, in another goroutine, if the
// registry has no module for the handler when the router starts: it may be down, refuse the
// credentials, or lack the module or its signature.
func (s *Source) Open(ctx context.Context, limit config.Size, env plugins.HandlerEnv, open func(context.Context, Content) (plugins.Handler, error)) (plugins.Handler, error) {
	timeout := time.Duration(math.MaxInt64)
	try := func(ctx context.Context) (plugins.Handler, error) {
		h, err := s.open(ctx, int64(limit), timeout, env, open)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", s.Module, s.explained(err))
		}
		return h, nil
	}
	if !env.Modules.Starting || env.Modules.Offline || !oci.IsRef(s.Module) {
		return try(ctx)
	}
	timeout = firstWait
	h, err := try(ctx)
	if _, remote := errors.AsType[registryError](err); remote && ctx.Err() == nil {
		timeout = math.MaxInt64
		return wait(ctx, env.Log, err, try), nil
	}
	return h, err
}

// open reads or fetches the module once, and opens its handler. timeout bounds the fetch.
func (s *Source) open(ctx context.Context, limit int64, timeout time.Duration, env plugins.HandlerEnv, open func(context.Context, Content) (plugins.Handler, error)) (plugins.Handler, error) {
	reading, cancel := context.WithTimeout(ctx, timeout)
	content, err := s.read(reading, limit, env)
	cancel()
	if err != nil {
		return nil, err
	}
	content.Digest = digestOf(content.Bytes)
	if s.SHA256 != "" && !strings.EqualFold(content.Digest, s.SHA256) {
		return nil, fmt.Errorf("its content differs from sha256: its SHA-256 is %s", content.Digest)
	}
	h, err := open(ctx, content)
	if err != nil {
		return nil, err
	}
	attrs := []any{"module", content.Name, "sha256", content.Digest}
	if content.verified != "" {
		attrs = append(attrs, "verified", content.verified)
	}
	env.Log.Info("module loaded", attrs...)
	return h, nil
}

func digestOf(module []byte) string {
	sum := sha256.Sum256(module)
	return hex.EncodeToString(sum[:])
}

// Problems returns the problems that an error of [Source.Open] means for a check, which is what the
// Load of a kind returns.
func (s *Source) Problems(err error) config.Problems {
	if err == nil {
		return nil
	}
	p := s.Node.At("module").Problemf("%v", err)
	switch {
	case errors.Is(err, oci.ErrNotCached):
		p = s.Node.At("module").Problemf("was not checked: it is not on this machine; router check -connect or router plugin pull fetches it")
		p.Warning = true
	case errors.Is(err, oci.ErrUnavailable):
		p.Warning = true
	}
	return config.Problems{p}
}

func (s *Source) read(ctx context.Context, limit int64, env plugins.HandlerEnv) (Content, error) {
	if !oci.IsRef(s.Module) {
		module, err := readFile(s.Module, limit)
		return Content{Name: s.Module, Bytes: module}, err
	}
	content, unkept, err := s.fetch(ctx, limit, env.Modules)
	if len(unkept) > 0 {
		env.Log.Warn("the module cannot be kept, so the next start needs the registry", unkept...)
	}
	return content, err
}

func readFile(path string, longest int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: build it, or correct the path", fileerr.Cause(err))
	}
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", fileerr.Cause(err))
	}
	defer f.Close()
	module, err := io.ReadAll(io.LimitReader(f, longest+1))
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", fileerr.Cause(err))
	}
	if int64(len(module)) > longest {
		return nil, fmt.Errorf("it is larger than %d bytes: build it without debug information (Go: -ldflags '-s -w'), or raise limits.module", longest)
	}
	return module, nil
}
