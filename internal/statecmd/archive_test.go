package statecmd_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/statecmd"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// FuzzExport reads files with arbitrary damage, and foreign ones: each is exported or an error, and
// none is changed.
func FuzzExport(f *testing.F) {
	good, err := os.ReadFile("../engine/testdata/format7/state.db")
	must.Succeed(f, err)
	f.Add(uint32(0), []byte{}, uint32(len(good)))
	f.Add(uint32(0), []byte("text"), uint32(4))
	f.Add(uint32(4096*5), []byte{0xff, 0xff}, uint32(len(good)))
	f.Add(uint32(4096*3+16), good[4096:4160], uint32(len(good)))
	f.Add(uint32(0), []byte{}, uint32(8192))
	f.Fuzz(func(t *testing.T, at uint32, bad []byte, size uint32) {
		text := bytes.Clone(good[:min(int(size), len(good))])
		copy(text[min(int(at), len(text)):], bad)
		path := filepath.Join(t.TempDir(), "state.db")
		must.Succeed(t, os.WriteFile(path, text, 0o600))
		if db, err := checkpoint.OpenReadOnly(path); err == nil {
			_ = statecmd.Export(db, path, io.Discard) // an error is as good as a result
			must.Succeed(t, db.Close())
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
			t.Error("the file was changed", err)
		}
	})
}

// TestExportOfSecrets: a Secret that a file has in full is exported as its identity.
func TestExportOfSecrets(t *testing.T) {
	const canary = "canary-in-the-coal-mine"
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	r := &event.Resource{} // not that of a Secret, so the file gets all of it
	r.Version, r.Resource = "v1", "others"
	o, err := event.ParseObject(r, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","uid":"u","resourceVersion":"1","annotations":{"a":"`+canary+`"}},"data":{"k":"`+canary+`"}}`)
	must.Succeed(t, err)
	must.Succeed(t, db.Write(checkpoint.Cut{
		Watches: []checkpoint.WatchCut{{ID: "w", Put: []*event.Object{o}}},
		Routes:  []checkpoint.RouteCut{{Name: "r", Put: []checkpoint.Pending{{ID: 1, Delta: &event.Delta{Source: "s", Op: event.Updated, Old: o, New: o}}}}},
	}))
	must.Succeed(t, db.WriteIntents(map[string][]*event.Object{"w": {o}}))
	must.Succeed(t, db.Close())
	db, err = checkpoint.OpenReadOnly(path)
	must.Succeed(t, err)
	defer func() { must.Report(t, db.Close()) }()
	var out bytes.Buffer
	must.Succeed(t, statecmd.Export(db, path, &out))
	if strings.Contains(out.String(), canary) || strings.Count(out.String(), `"name":"s"`) != 5 {
		t.Errorf("got %s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
}
