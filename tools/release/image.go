package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes the image of all platforms as an OCI image layout, and prints digest and sizes.
func image(ctx context.Context, o options, stdout io.Writer) error {
	if err := replaceable(o.out, "oci-layout"); err != nil {
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
	return s.writeImage(o.out, o.platforms, routers, stdout)
}

// writeImage writes the image with these binaries of the router.
func (s source) writeImage(out string, platforms []platform, routers map[platform][]byte, stdout io.Writer) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	index = mutate.Annotations(index, s.labels()).(v1.ImageIndex)
	for _, p := range platforms {
		entries, err := s.rootfs(routers[p])
		if err != nil {
			return err
		}
		one, err := s.image(p, entries)
		if err != nil {
			return fmt.Errorf("the image of %s: %w", p, err)
		}
		size, err := report(one, entries)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "image %s: %s\n", p, size)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	if err := writeLayout(out, index, s.version); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "image: version %s, digest %s\n", s.version, digest)
	return nil
}

// labels returns the labels of the image, which are its annotations too.
func (s source) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":         "deltarouter",
		"org.opencontainers.image.description":   "Routes the changes of a Kubernetes cluster to webhooks, brokers, files and the cluster itself",
		"org.opencontainers.image.source":        "https://github.com/deltarouter/deltarouter",
		"org.opencontainers.image.documentation": "https://github.com/deltarouter/deltarouter/blob/main/docs/OPERATIONS.md",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       s.version,
		"org.opencontainers.image.created":       s.time.Format(time.RFC3339),
	}
	if s.revision != "" {
		labels["org.opencontainers.image.revision"] = s.revision
	}
	return labels
}

// image makes the image of one platform: one layer with all files.
func (s source) image(p platform, entries []entry) (v1.Image, error) {
	var content bytes.Buffer
	if err := writeTar(&content, entries, s.time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: s.time}
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "tools/release"}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture, config.Config = created, p.os, p.arch, imageConfig()
	config.Config.Labels = s.labels()
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(img, s.labels()).(v1.Image), nil
}

// imageConfig returns the settings of a container. The Dockerfile states the same, and a test
// compares them.
func imageConfig() v1.Config {
	return v1.Config{
		User: fmt.Sprintf("%d:%d", user, user),
		// The variable lets `kubectl exec POD -- router status` find the router's API.
		Env:        []string{"PATH=/usr/local/bin", "DELTAROUTER_CONFIG=/" + configPath},
		Entrypoint: []string{"/" + routerPath},
		Cmd:        []string{"run"},
		WorkingDir: "/" + statePath,
		Volumes:    map[string]struct{}{"/" + statePath: {}},
	}
}

// report returns the sizes of an image in megabytes.
func report(img v1.Image, entries []entry) (string, error) {
	layers, err := img.Layers()
	if err != nil {
		return "", err
	}
	var packed, unpacked int64
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return "", err
		}
		packed += size
	}
	for _, e := range entries {
		unpacked += int64(len(e.content))
	}
	return fmt.Sprintf("%.1f MB, compressed %.1f MB", float64(unpacked)/1e6, float64(packed)/1e6), nil
}

// replaceable returns an error if a folder exists without the file that earlier runs wrote there.
func replaceable(dir, marker string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
		return fmt.Errorf("%s exists and has no %s, so this command did not write it: remove it or name another folder", dir, marker)
	}
	return nil
}

// writeLayout replaces a folder with the layout of an index.
func writeLayout(dir string, index v1.ImageIndex, version string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("the layout %s: %w", dir, err)
	}
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
	if err != nil {
		return fmt.Errorf("the layout %s: %w", dir, err)
	}
	return nil
}
