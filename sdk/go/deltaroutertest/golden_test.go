package deltaroutertest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

const file = `What it is about.
-- config.json --
{"greeting": "hello"}
-- deltas.json --
{"op": "added", "object": {"kind": "Pod", "metadata": {"namespace": "d", "name": "a", "uid": "u", "resourceVersion": "7"}}, "initial": true}
{"op": "deleted", "object": {"metadata": {"name": "retry"}}}
{"op": "sync", "object": {"metadata": {"name": "drop"}}} {"op": "sync", "object": {"metadata": {"name": "fail"}}}
`

const results = `-- results.json --
{"events":[{"type":"t","data":"hello a"},{"data":{"op":"added"}}]}
{"retry":"later"}
{"drop":true}
{"error":"bad"}
`

func setup() (deltarouter.Handler, error) {
	var config struct{ Greeting string }
	if err := deltarouter.Config(&config); err != nil {
		return nil, err
	}
	return func(d deltarouter.Delta) ([]deltarouter.Event, error) {
		switch d.Name {
		case "retry":
			return nil, deltarouter.Retry(errors.New("later"), time.Second)
		case "drop":
			return nil, deltarouter.ErrDrop
		case "fail":
			return nil, errors.New("bad")
		}
		return []deltarouter.Event{{Type: "t", Data: config.Greeting + " " + d.Name}, {Data: []byte(`{"op": "` + d.Op.String() + `"}`)}}, nil
	}, nil
}

func TestGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txtar")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file + results)
	Golden(t, path, setup)

	write(file) // update must restore the results
	for range 2 {
		golden(t, path, setup, true)
		if got, err := os.ReadFile(path); err != nil || string(got) != file+results {
			t.Errorf("got %s, %v", got, err)
		}
	}
}

func TestDeltas(t *testing.T) {
	deltas, err := Deltas([]byte(`{"op": "deselected", "source": "pods", "cluster": "c", "resource": "v1/pods", "stale": true,
		"object": {"kind": "Pod", "metadata": {"namespace": "d", "name": "a", "uid": "u", "resourceVersion": "7"}}}`))
	if err != nil || len(deltas) != 1 {
		t.Fatal(deltas, err)
	}
	d := deltas[0]
	if d.String() != "deselected pods d/a" || d.Kind != "Pod" || d.UID != "u" || d.ResourceVersion != "7" || !d.Stale ||
		string(d.OldObject) != string(d.Object) || d.Cluster != "c" || d.Resource != "v1/pods" {
		t.Errorf("got %+v", d)
	}
	for _, bad := range []string{`{`, `{"op": "gone", "object": {}}`, `{"op": "added"}`, `{"op": "added", "objekt": {}}`, `{"op": "added", "object": []}`} {
		if _, err := Deltas([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
