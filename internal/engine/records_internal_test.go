package engine

import (
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestObjects shows that the routes that are objects are read as they were written last, also from
// a backup, and that they are kept while the configuration grants such routes.
func TestObjects(t *testing.T) {
	// Guarantee: objects-offline
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	open := func(dir string) *State {
		t.Helper()
		s, err := OpenState(config.State{Dir: dir}, nil, Shipping{}, log)
		must.Succeed(t, err)
		return s
	}
	expect := func(when string, s *State, want map[string]string) {
		t.Helper()
		records, err := s.Objects()
		got := make(map[string]string)
		for key, record := range records {
			got[key] = string(record)
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, %v", when, got, err)
		}
	}
	s := open(dir)
	expect("a new folder", s, nil)
	must.Succeed(t, s.SetObjects(map[string][]byte{"a": []byte("1"), "b": []byte("1"), "c": []byte("1")}))
	must.Succeed(t, s.SetObjects(map[string][]byte{"a": []byte("1"), "b": []byte("2"), "d": []byte("1")}))
	want := map[string]string{"a": "1", "b": "2", "d": "1"}
	expect("after two writes", s, want)
	for name, c := range map[string]struct {
		cfg  config.Config
		kept bool
	}{"with a grant": {config.Config{CustomResources: config.CustomResources{Routes: &config.Grant{}}}, true}, "without one": {config.Config{}, false}} {
		folder := t.TempDir()
		backup, err := s.Backup(t.Context())
		must.Succeed(t, err)
		text, err := io.ReadAll(backup)
		must.Succeed(t, err)
		must.Succeed(t, backup.Close())
		must.Succeed(t, os.WriteFile(filepath.Join(folder, StateFile), text, 0o600))
		restored := open(folder)
		expect("in a backup", restored, want)
		keep := checkpoint.Configured{Handlers: Remembering(&c.cfg)}
		now := time.Now()
		must.Succeed(t, restored.db.Forget(keep, now))
		must.Succeed(t, restored.db.Forget(keep, now.Add(2*checkpoint.KeepBacklogs)))
		left := want
		if !c.kept {
			left = nil
		}
		expect(name, restored, left)
		must.Succeed(t, restored.Close(t.Context()))
	}
	must.Succeed(t, s.Close(t.Context()))
	if err := s.SetObjects(nil); err == nil {
		t.Error("a write to a closed folder succeeds")
	}
}
