package oci

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"oras.land/oras-go/v2/registry"
)

// Scheme is the beginning of a reference.
const Scheme = "oci://"

// Ref refers to a module in a registry, by a tag, a digest, or both. If it has both, the digest
// counts.
type Ref struct {
	Registry   string // host, or host:port
	Repository string
	Tag        string
	Digest     string // sha256:…
}

// IsRef reports whether the text is meant as a reference to a registry.
func IsRef(text string) bool { return strings.HasPrefix(text, Scheme) }

// Parse reads a reference, as in oci://registry.example.com/team/dns:1.2@sha256:….
func Parse(text string) (Ref, error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	host, path, slash := strings.Cut(rest, "/")
	if !ok || !slash || host == "" || path == "" {
		return Ref{}, errors.New("must be like oci://registry.example.com/team/module@sha256:…")
	}
	r := Ref{Registry: host}
	path, digest, pinned := strings.Cut(path, "@")
	if at := strings.LastIndex(path, ":"); at > strings.LastIndex(path, "/") {
		path, r.Tag = path[:at], path[at+1:]
		if (registry.Reference{Registry: host, Repository: path, Reference: r.Tag}).ValidateReferenceAsTag() != nil {
			return Ref{}, fmt.Errorf("%q is no tag: a tag has letters, digits, _, . and -, at most 128", r.Tag)
		}
	}
	r.Repository = path
	if pinned {
		if !isDigest(digest) {
			return Ref{}, errors.New("the part after @ must be sha256: and 64 hexadecimal digits in lower case")
		}
		r.Digest = digest
	}
	of := registry.Reference{Registry: r.Registry, Repository: r.Repository}
	if of.ValidateRegistry() != nil {
		return Ref{}, errors.New("the part before the first slash must be the host of a registry, with a port if it is not 443")
	}
	if of.ValidateRepository() != nil {
		return Ref{}, fmt.Errorf("%q is no repository: its parts have lower case letters, digits, and ., _ or - between them", r.Repository)
	}
	return r, nil
}

// String returns the reference with its scheme.
func (r Ref) String() string {
	text := Scheme + r.Name()
	if r.Tag != "" {
		text += ":" + r.Tag
	}
	if r.Digest != "" {
		text += "@" + r.Digest
	}
	return text
}

// Name returns the registry and the repository.
func (r Ref) Name() string { return r.Registry + "/" + r.Repository }

// WithDigest returns the reference with a digest.
func (r Ref) WithDigest(digest string) Ref {
	r.Digest = digest
	return r
}

// Tagged returns the tag, which is latest if there is none.
func (r Ref) Tagged() string {
	if r.Tag == "" {
		return "latest"
	}
	return r.Tag
}

// isLoopback reports whether the registry is on this machine by its name.
func (r Ref) isLoopback() bool {
	host := hostOf(r.Registry)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func isDigest(text string) bool {
	digits, ok := strings.CutPrefix(text, "sha256:")
	sum, err := hex.DecodeString(digits)
	return ok && err == nil && len(sum) == 32 && strings.ToLower(digits) == digits
}
