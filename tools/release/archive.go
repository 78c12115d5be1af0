package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// checksumsFile lists the SHA-256 of all other artifacts, in the format of sha256sum.
const checksumsFile = "checksums.txt"

// artifact is a file of a release.
type artifact struct {
	name    string
	content []byte
}

// release writes all artifacts of a release into a folder.
func release(ctx context.Context, o options, stdout io.Writer) error {
	if err := replaceable(o.out, checksumsFile); err != nil {
		return err
	}
	s, err := inspect(ctx, o)
	if err != nil {
		return err
	}
	routers, err := s.buildAll(ctx, o.platforms)
	if err != nil {
		return err
	}
	var artifacts []artifact
	for _, p := range o.platforms {
		made, err := s.archive(ctx, p, routers[p])
		if err != nil {
			return err
		}
		artifacts = append(artifacts, made...)
	}
	chart, err := s.packChart()
	if err != nil {
		return err
	}
	artifacts = append(artifacts, chart)
	linux := slices.DeleteFunc(slices.Clone(o.platforms), func(p platform) bool { return p.os != "linux" })
	if len(linux) > 0 {
		packed, err := s.packImage(linux, routers, stdout)
		if err != nil {
			return err
		}
		artifacts = append(artifacts, packed)
	}
	return writeArtifacts(o.out, artifacts, stdout)
}

// name returns the name of an artifact.
func (s source) name(suffix string) string { return "deltarouter_" + s.version + "_" + suffix }

// archive returns the archive of one platform and its bill of materials.
func (s source) archive(ctx context.Context, p platform, router []byte) ([]artifact, error) {
	name := s.name(p.os + "_" + p.arch)
	modules, err := readModules(router)
	if err != nil {
		return nil, fmt.Errorf("the router for %s: %w", p, err)
	}
	bill, err := s.bill(p, router, modules)
	if err != nil {
		return nil, err
	}
	entries := []entry{{name: name, mode: 0o755}}
	for _, file := range []string{"CHANGELOG.md", "LICENSE", "README.md"} {
		content, err := os.ReadFile(filepath.Join(s.root, file))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: path.Join(name, file), mode: 0o644, content: content})
	}
	licenses, err := s.licenses(ctx, modules)
	if err != nil {
		return nil, err
	}
	entries = append(entries,
		entry{name: path.Join(name, "THIRD-PARTY-LICENSES.txt"), mode: 0o644, content: licenses},
		entry{name: path.Join(name, "router"), mode: 0o755, content: router})
	packed, err := compressTar(entries, s.time)
	return []artifact{{name + ".tar.gz", packed}, {name + ".cdx.json", bill}}, err
}

// compressTar returns a .tar.gz without a time in its header.
func compressTar(entries []entry, modified time.Time) ([]byte, error) {
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	if err := writeTar(compressor, entries, modified); err != nil {
		return nil, err
	}
	err := compressor.Close()
	return packed.Bytes(), err
}

// packImage returns the image as a tar file of its layout, the oci-archive of skopeo and podman.
func (s source) packImage(platforms []platform, routers map[platform][]byte, stdout io.Writer) (artifact, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return artifact{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := s.writeImage(filepath.Join(dir, "image"), platforms, routers, stdout); err != nil {
		return artifact{}, err
	}
	var entries []entry
	err = fs.WalkDir(os.DirFS(filepath.Join(dir, "image")), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case d.IsDir():
			entries = append(entries, entry{name: name, mode: 0o755})
			return nil
		}
		content, err := os.ReadFile(filepath.Join(dir, "image", name))
		entries = append(entries, entry{name: name, mode: 0o644, content: content})
		return err
	})
	if err != nil {
		return artifact{}, err
	}
	var packed bytes.Buffer
	err = writeTar(&packed, entries, s.time)
	return artifact{s.name("image.tar"), packed.Bytes()}, err
}

// writeArtifacts replaces a folder with the artifacts and their checksums.
func writeArtifacts(dir string, artifacts []artifact, stdout io.Writer) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	slices.SortFunc(artifacts, func(a, b artifact) int { return strings.Compare(a.name, b.name) })
	var checksums bytes.Buffer
	for _, a := range artifacts {
		fmt.Fprintf(&checksums, "%x  %s\n", sha256.Sum256(a.content), a.name)
	}
	artifacts = append(artifacts, artifact{checksumsFile, checksums.Bytes()})
	for _, a := range artifacts {
		if err := os.WriteFile(filepath.Join(dir, a.name), a.content, 0o644); err != nil {
			return err
		}
	}
	_, err := stdout.Write(checksums.Bytes())
	return err
}
