package pipeline_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

func letterOf(t *testing.T, resource string, op event.Op) pipeline.Letter {
	t.Helper()
	r := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Cluster: "test"}
	parse := func(version string) *event.Object {
		o, err := event.ParseObject(r, `{"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "`+version+"\"},\n \"data\": \"<CANARY>\"}")
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	d := &event.Delta{Source: "src", Op: op, Old: parse("1"), Stale: true}
	if op == event.Updated {
		d.New = parse("2")
	}
	return pipeline.Letter{Time: time.Unix(0, 0), Route: "r", Sink: "s", Err: errors.New("no"), Attempts: 4, Delta: d}
}

func TestFileDeadLetters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.jsonl")
	if err := os.WriteFile(path, []byte(`{"cut":`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, letter := range []pipeline.Letter{letterOf(t, "pods", event.Updated), letterOf(t, "pods", event.Deleted), letterOf(t, "secrets", event.Updated)} {
		f, err := pipeline.OpenDeadLetters(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.DeadLetter(t.Context(), letter); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	const head = `{"time":"1970-01-01T00:00:00Z","route":"r","sink":"s","error":"no","attempts":4,"delta":{"op":`
	const body = `{"metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"?"},"data":"<CANARY>"}`
	v1, v2 := strings.Replace(body, "?", "1", 1), strings.Replace(body, "?", "2", 1)
	equal(t, "lines", lines,
		`{"cut":`,
		head+`"updated","source":"src","key":"default/a","uid":"u","resourceVersion":"2","stale":true,"object":`+v2+`,"oldObject":`+v1+`}}`,
		head+`"deleted","source":"src","key":"default/a","uid":"u","resourceVersion":"1","stale":true,"object":`+v1+`}}`,
		head+`"updated","source":"src","key":"default/a","uid":"u","resourceVersion":"2","stale":true}}`,
	)
	for _, line := range lines[1:] {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

func TestDeadLettersAreForTheirOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.jsonl")
	f, err := pipeline.OpenDeadLetters(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o", mode)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.DeadLetter(t.Context(), letterOf(t, "pods", event.Deleted)); err == nil {
		t.Error("a letter to a closed file must not be acked")
	}
	if _, err := pipeline.OpenDeadLetters(filepath.Join(path, "x")); err == nil || !strings.Contains(err.Error(), "dead letters") {
		t.Errorf("got %v", err)
	}
}
