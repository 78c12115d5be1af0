package state

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
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: remove it", path)
	case err == nil && info.Size() == hashKeySize:
		key, err := os.ReadFile(path)
		return key, fileerr.Explain(err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fileerr.Explain(err)
	}
	key := make([]byte, hashKeySize)
	_, _ = rand.Read(key) // it never fails
	return key, fileerr.Explain(os.WriteFile(path, key, 0o600))
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
