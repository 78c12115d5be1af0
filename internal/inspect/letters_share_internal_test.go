package inspect

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestLettersShare: the dead letters of a team are bounded by its share of state.maxSize, and the
// lost ones are logged once, and counted in the metrics and for the status.
func TestLettersShare(t *testing.T) {
	var log bytes.Buffer
	objects, m := &Current{}, metrics.New()
	objects.Store(&Inventory{config: &config.Config{Routes: []*config.Route{{Name: "team/web", ID: "team/r"}}}})
	d := NewDeadLetters(objects, m, slog.New(slog.NewTextHandler(&log, nil)))
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(t.TempDir(), "state.db")})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, db.Close()) })
	letters, err := db.Letters(d.Bounds(config.State{MaxSize: 4 << 20, DeadLetters: config.DeadLetters{Max: 1000, MaxAge: time.Hour}}))
	must.Succeed(t, err)
	random := make([]byte, 48<<10)
	_, err = rand.Read(random)
	must.Succeed(t, err)
	r := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
	o, err := event.ParseObject(r, fmt.Sprintf(`{"metadata":{"namespace":"ns","name":"n","uid":"u","resourceVersion":"1"},"data":%q}`, base64.StdEncoding.EncodeToString(random)))
	must.Succeed(t, err)
	routes := []string{"own", "own", "own", "own", "own", "own", "other/r"}
	for range 10 {
		routes = append(routes, "team/r")
	}
	for _, route := range routes {
		must.Succeed(t, letters.Add(t.Context(), []checkpoint.Letter{{
			Time: time.Now(), Route: route, Error: "no", Delta: &event.Delta{Source: "s", Op: event.Added, New: o},
		}}))
	}
	kept := len(letters.IDs("team/r", 0, 0))
	if kept < 3 || kept > 5 || len(letters.IDs("", 0, 0)) != kept+7 || d.Evicted("team/r") != 10-kept || d.Evicted("own") != 0 {
		t.Errorf("%d of %d are kept, %d of the team; it lost %d", len(letters.IDs("", 0, 0)), len(routes), kept, d.Evicted("team/r"))
	}
	if n := testutil.ToFloat64(m.LettersLost.WithLabelValues("team/web", "share")); int(n) != 10-kept {
		t.Errorf("%v are counted", n)
	}
	if text := log.String(); strings.Count(text, "dropped") != 1 || !strings.Contains(text, "a sixteenth") || !strings.Contains(text, "route=team/web reason=share") {
		t.Errorf("the log is %s", text)
	}
}
