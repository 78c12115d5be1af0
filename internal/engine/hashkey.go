package engine

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// hashKeyFile is the file in state.dir with the key of these hashes.
const hashKeyFile = "hash.key"

const hashKeySize = 32

// readHashKey returns the key of the state folder, and makes one if there is none. A key of another
// size is replaced; limits then begin again.
func readHashKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, hashKeyFile)
	info, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fileerr.Explain(err)
	}
	if err == nil {
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file: remove it", path)
		}
		if info.Size() == hashKeySize {
			key, err := os.ReadFile(path)
			return key, fileerr.Explain(err)
		}
	}
	key := make([]byte, hashKeySize)
	_, _ = rand.Read(key) // it never fails
	return key, fileerr.Explain(os.WriteFile(path, key, 0o600))
}

// memoryOfFolder is the name of the records of the state folder itself, in the place of a kv. No
// handler has such a name.
const memoryOfFolder = "router:folder"

// hashKeyOf returns the key of the state file, if it has one, and else that of the folder. Only the
// file of a fleet has one: so the standbys have the same key. Without it, they would not recognize
// the hashes in their files.
func hashKeyOf(db *checkpoint.DB, dir string, fleet bool) ([]byte, error) {
	key, err := readHashKey(dir)
	if err != nil {
		return nil, err
	}
	saved, err := db.LoadMemory(memoryOfFolder)
	if err != nil {
		return nil, err
	}
	for _, v := range saved {
		if v.Key == hashKeyFile && len(v.Value) == hashKeySize {
			return v.Value, nil
		}
	}
	if !fleet {
		return key, nil
	}
	return key, db.Write(checkpoint.Cut{Memories: []checkpoint.MemoryCut{{
		Handler: memoryOfFolder, Put: []checkpoint.Value{{Key: hashKeyFile, Value: key}},
	}}})
}

// Hashed replaces a key by its hash, so that only the hash reaches the disk. A reader of the state
// folder can still test guesses of the key.
func (s *State) Hashed(ask func(context.Context, *event.Delta) (string, error)) func(context.Context, *event.Delta) (string, error) {
	if ask == nil {
		return nil
	}
	return func(ctx context.Context, d *event.Delta) (string, error) {
		key, err := ask(ctx, d)
		if err != nil || key == "" {
			return key, err
		}
		sum := hmac.New(sha256.New, s.hashKey)
		_, _ = sum.Write([]byte(key)) // it never fails
		return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)), nil
	}
}
