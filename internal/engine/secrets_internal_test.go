package engine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestMemoriesOfSecrets: the kv of a handler that receives Secrets is not written, and its saved
// values are removed.
func TestMemoriesOfSecrets(t *testing.T) {
	// Guarantee: secrets-off-disk
	const canary = "canary-in-the-coal-mine"
	path := filepath.Join(t.TempDir(), "state.db")
	m, db, end := memoriesIn(t, path)
	stores := make(map[string]plugins.KV)
	for _, handler := range []string{"plain", "secret"} {
		store, err := m.Open(handler)
		must.Succeed(t, err)
		stores[handler] = store
		must.Succeed(t, store.Commit([]plugins.KVWrite{{Key: "k", Value: []byte("before")}}, 1<<20))
	}
	write := func() {
		t.Helper()
		must.Succeed(t, db.Write(checkpoint.Cut{Memories: m.dirty()}))
	}
	write()
	m.Withhold([]string{"secret", "other"})
	must.Succeed(t, stores["secret"].Commit([]plugins.KVWrite{{Key: canary, Value: []byte(canary)}}, 1<<20))
	write()
	for handler, want := range map[string]int{"plain": 1, "secret": 0} {
		if saved, err := db.LoadMemory(handler); err != nil || len(saved) != want {
			t.Errorf("handler %s: %v, %v", handler, saved, err)
		}
	}
	if v, _ := stores["secret"].Get("k"); string(v) != "before" {
		t.Errorf("it has forgotten: %q", v)
	}
	end()
	if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte(canary)) {
		t.Error("it is in the state file", err)
	}
}

// TestHashedKeys: equal keys stay equal, also after a restart, and a failed evaluation stays one.
func TestHashedKeys(t *testing.T) {
	// Guarantee: secrets-off-disk
	dir := t.TempDir()
	keys := make([]map[string]string, 2)
	failed := errors.New("absent")
	for life := range keys {
		hashKey, err := readHashKey(dir)
		must.Succeed(t, err)
		s := &State{hashKey: hashKey}
		keys[life] = make(map[string]string)
		for _, name := range []string{"a", "b", ""} {
			ask := s.Hashed(func(context.Context, *event.Delta) (string, error) { return name, nil })
			if keys[life][name], err = ask(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Hashed(func(context.Context, *event.Delta) (string, error) { return "", failed })(t.Context(), nil); !errors.Is(err, failed) {
			t.Error(err)
		}
		if s.Hashed(nil) != nil {
			t.Error("no key has become one")
		}
	}
	if a, b := keys[0]["a"], keys[0]["b"]; a != keys[1]["a"] || a == b || len(a) < 40 || keys[0][""] != "" {
		t.Errorf("%v", keys)
	}
	if info, err := os.Stat(filepath.Join(dir, hashKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
}
