package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// user is the numeric user and group of the router in the image: that of "nonroot" in many images,
// so that runAsNonRoot of Kubernetes can check it.
const user = 65532

// The paths that the image's configuration and the documents name.
const (
	routerPath       = "usr/local/bin/router"
	certificatesPath = "etc/ssl/certs/ca-certificates.crt"
	configPath       = "etc/deltarouter/config.yaml" // the user mounts it
	licensesPath     = "usr/local/share/licenses/deltarouter"
	statePath        = "var/lib/deltarouter"
)

// entry is a file or, without content, a folder of the image.
type entry struct {
	name    string // relative to the root
	mode    int64
	owner   int
	content []byte
}

// rootfs returns all files of the image, parents first. Time zones are in the router itself
// (time/tzdata). The JavaScript engine is in the router, its licences are a file of their own.
func (s source) rootfs(router []byte) ([]entry, error) {
	certificates, err := certificatesPEM()
	if err != nil {
		return nil, err
	}
	engine, err := os.ReadFile(filepath.Join(s.root, engineFolder, "LICENSES.txt"))
	if err != nil {
		return nil, fmt.Errorf("the licences of the JavaScript engine: %w", err)
	}
	return []entry{
		{name: "etc", mode: 0o755},
		{name: "etc/deltarouter", mode: 0o755},
		{name: "etc/ssl", mode: 0o755},
		{name: "etc/ssl/certs", mode: 0o755},
		{name: certificatesPath, mode: 0o644, content: certificates},
		{name: "tmp", mode: 0o1777}, // for native plugins and router test
		{name: "usr", mode: 0o755},
		{name: "usr/local", mode: 0o755},
		{name: "usr/local/bin", mode: 0o755},
		{name: routerPath, mode: 0o755, content: router},
		{name: "usr/local/share", mode: 0o755},
		{name: "usr/local/share/licenses", mode: 0o755},
		{name: licensesPath, mode: 0o755},
		{name: licensesPath + "/javascript-engine.txt", mode: 0o644, content: engine},
		{name: "var", mode: 0o755},
		{name: "var/lib", mode: 0o755},
		{name: statePath, mode: 0o700, owner: user},
	}, nil
}

// writeTar writes the entries as one layer of an image.
func writeTar(w io.Writer, entries []entry, modified time.Time) error {
	out := tar.NewWriter(w)
	for _, e := range entries {
		header := &tar.Header{
			Format: tar.FormatUSTAR, Typeflag: tar.TypeDir, Name: e.name + "/", Mode: e.mode, Uid: e.owner, Gid: e.owner, ModTime: modified,
		}
		if e.content != nil {
			header.Typeflag, header.Name, header.Size = tar.TypeReg, e.name, int64(len(e.content))
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := out.Write(e.content); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return out.Close()
}

// files writes the files of the image into a new folder, for the Dockerfile, which sets the owners.
func files(ctx context.Context, o options, _ io.Writer) error {
	if len(o.platforms) != 1 {
		return errors.New("files needs one platform, as in -platforms linux/amd64")
	}
	if err := os.Mkdir(o.out, 0o755); err != nil {
		return fmt.Errorf("files writes a new folder: %w", err)
	}
	s, err := inspect(ctx, o)
	if err != nil {
		return err
	}
	routers, err := s.buildAll(ctx, o.platforms)
	if err != nil {
		return err
	}
	entries, err := s.rootfs(routers[o.platforms[0]])
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := e.write(o.out); err != nil {
			return err
		}
	}
	// Children first: writing a file changes the time of its folder.
	for _, e := range slices.Backward(entries) {
		if err := os.Chtimes(filepath.Join(o.out, e.name), s.time, s.time); err != nil {
			return err
		}
	}
	return nil
}

// write writes the entry below a folder.
func (e entry) write(below string) error {
	path := filepath.Join(below, filepath.FromSlash(e.name))
	mode := fs.FileMode(e.mode & 0o777)
	if e.mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if e.content == nil {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
	} else if err := os.WriteFile(path, e.content, 0o600); err != nil {
		return err
	}
	// Chmod, because the process's umask limits the modes above.
	return os.Chmod(path, mode)
}
