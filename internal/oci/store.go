package oci

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Store is a folder with content by its digest, and with the last known digests of tags. Content is
// compared with its digest at each read. It is safe for concurrent use, also by several processes.
type Store struct {
	Dir  string // empty: nothing is kept
	Also string // a further folder that is read only; may be empty
}

// UserStore is the folder for the modules of commands and of routers without a state folder. It is
// empty if the user has none.
func UserStore() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "deltarouter", "modules")
}

// maxStore bounds the files of a store. The files whose last use is longest ago are removed.
const maxStore = 1 << 30

// digestOf returns the digest of content.
func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// fileOf returns the name of the file for a digest that isDigest accepts.
func fileOf(digest string) string { return strings.Replace(digest, ":", "-", 1) }

// get returns the content with a digest, of at most limit bytes.
func (s Store) get(digest string, limit int64) ([]byte, bool) {
	for _, dir := range []string{s.Dir, s.Also} {
		if dir == "" || !isDigest(digest) {
			continue
		}
		path := filepath.Join(dir, fileOf(digest))
		content, err := readBounded(path, limit)
		if err != nil {
			continue
		}
		if digestOf(content) != digest {
			if dir == s.Dir {
				_ = os.Remove(path) // it was damaged; otherwise the next fetch replaces it
			}
			continue
		}
		if dir == s.Dir {
			now := time.Now()
			_ = os.Chtimes(path, now, now) // the order of removal
		}
		return content, true
	}
	return nil, false
}

// put keeps content.
func (s Store) put(digest string, content []byte) error {
	return s.write(fileOf(digest), content)
}

// resolved returns the last known digest of a tag.
func (s Store) resolved(r Ref) (string, bool) {
	if s.Dir == "" {
		return "", false
	}
	digest, err := readBounded(filepath.Join(s.Dir, tagFile(r)), 128)
	return string(digest), err == nil && isDigest(string(digest))
}

// setResolved keeps the digest of a tag.
func (s Store) setResolved(r Ref, digest string) error { return s.write(tagFile(r), []byte(digest)) }

func tagFile(r Ref) string {
	r.Digest = ""
	return "tag-" + strings.TrimPrefix(digestOf([]byte(r.String())), "sha256:")
}

// write replaces a file atomically.
func (s Store) write(name string, content []byte) error {
	if s.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	s.prune(int64(len(content)))
	f, err := os.CreateTemp(s.Dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.Dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// abandonedAfter is the age of a file that a process did not finish.
const abandonedAfter = time.Hour

// prune makes room for a file. Errors are ignored: the store is only larger then.
func (s Store) prune(room int64) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return
	}
	type file struct {
		path string
		size int64
		used time.Time
	}
	var files []file
	total := room
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		path := filepath.Join(s.Dir, e.Name())
		if strings.HasPrefix(e.Name(), ".new-") {
			if time.Since(info.ModTime()) > abandonedAfter {
				_ = os.Remove(path)
			}
			continue
		}
		files = append(files, file{path, info.Size(), info.ModTime()})
		total += info.Size()
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path)) })
	for _, f := range files {
		if total <= maxStore {
			return
		}
		if os.Remove(f.path) == nil {
			total -= f.size
		}
	}
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		return nil, errTooLarge
	}
	return content, err
}
