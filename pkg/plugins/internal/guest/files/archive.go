package files

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// unpack copies the content of an archive: zip, tar, or tar compressed by gzip.
func (t *Tree) unpack(to string, data []byte) error {
	if _, err := t.folder(to); err != nil {
		return err
	}
	switch {
	case bytes.HasPrefix(data, []byte("PK")):
		return t.unzip(to, data)
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		plain, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("a damaged archive: %w", err)
		}
		return t.untar(to, plain)
	}
	return t.untar(to, bytes.NewReader(data))
}

func (t *Tree) unzip(to string, data []byte) error {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return fmt.Errorf("a damaged archive: %w", err)
	}
	for _, f := range archive.File {
		name, err := inside(to, f.Name)
		switch {
		case err != nil:
		case f.Mode().IsDir():
			_, err = t.folder(name)
		case !f.Mode().IsRegular():
			err = errLink
		default:
			var content []byte
			if content, err = t.read(f.Open); err == nil {
				err = t.add(name, content)
			}
		}
		if err != nil {
			return fmt.Errorf("%q: %w", f.Name, err)
		}
	}
	return nil
}

var errLink = errors.New("a link or a device, which an archive for a guest must not contain")

// mostHeaders limits the entries of an archive that are no files, such as comments.
const mostHeaders = 4 * MaxFiles

func (t *Tree) untar(to string, from io.Reader) error {
	// Headers take space too, so that a compressed archive could expand without end.
	archive := tar.NewReader(io.LimitReader(from, 2*MaxBytes))
	for n := 0; ; n++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err != nil || n > mostHeaders {
			return errors.New("neither a zip nor a tar archive, or a damaged one, or too large")
		}
		if err := t.entry(to, h, archive); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
}

func (t *Tree) entry(to string, h *tar.Header, content io.Reader) error {
	name, err := inside(to, h.Name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil
	case tar.TypeDir:
		_, err := t.folder(name)
		return err
	case tar.TypeReg:
		data, err := t.read(func() (io.ReadCloser, error) { return io.NopCloser(content), nil })
		if err != nil {
			return err
		}
		return t.add(name, data)
	}
	return errLink
}

// inside returns the path of an entry of an archive. Its name must not leave the folder.
func inside(to, name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errors.New("its name leaves the archive")
		}
	}
	if strings.HasPrefix(name, "/") || strings.ContainsAny(name, "\\\x00") {
		return "", errors.New("its name leaves the archive")
	}
	return path.Join(to, name), nil
}
