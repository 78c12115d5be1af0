package main

import (
	"testing"

	"github.com/deltarouter/deltarouter/sdk/process"
	"github.com/deltarouter/deltarouter/sdk/process/processtest"
)

func TestCounts(t *testing.T) {
	p := processtest.Start(t, process.Plugin{Setup: setup}, processtest.Options{Config: `{"prefix": "n/"}`, KV: map[string]string{"n/web": "41"}})
	results := p.Handle(
		process.Delta{Op: process.Added, Source: "pods", Namespace: "web", Name: "a", Object: []byte(`{}`)},
		process.Delta{Op: process.Updated, Source: "pods", Namespace: "db", Name: "b", Object: []byte(`{}`)},
	)
	for i, want := range []string{`{"change":"added pods web/a","number":42}`, `{"change":"updated pods db/b","number":1}`} {
		if results[i].Verdict != "ok" || len(results[i].Events) != 1 || string(results[i].Events[0].Data) != want {
			t.Errorf("got %+v, want %s", results[i], want)
		}
	}
	if kept := p.KV()["n/web"]; kept != "42" {
		t.Errorf("it remembers %q", kept)
	}
}
