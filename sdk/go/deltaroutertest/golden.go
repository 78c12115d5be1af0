// Package deltaroutertest tests handlers with files of deltas and their expected events.
package deltaroutertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

// Golden runs a handler on each file that matches pattern, as a subtest. The file is in the txtar
// format: a description, and sections that begin with a line `-- name --`:
//
//	config.json  the handler's configuration; absent: none
//	deltas.json  JSON objects, one after the other, as a route without a handler delivers them: {"op", "object", "oldObject"},
//	             and "source", "cluster", "resource", "initial", "stale", "redelivered", "late", "repeat", "since", "suppressed" and
//	             "event" {"id", "type", "source", "subject", "route", "time", "data"} if the handler looks at them
//	results.json a JSON object per delta: {"events": [{"type", "subject", "data"}]} with the fields that the handler set, or
//	             {"error": "…"}, {"retry": "…"} or {"drop": true}
//
// setup is the argument of [deltarouter.Setup]. Golden calls it for each file, after it has set the
// configuration. `go test -args update` writes the actual results into the files.
func Golden(t *testing.T, pattern string, setup func() (deltarouter.Handler, error)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s (%v)", pattern, err)
	}
	update := slices.Contains(flag.Args(), "update")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			golden(t, file, setup, update)
		})
	}
}

func golden(t *testing.T, file string, setup func() (deltarouter.Handler, error), update bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := split(string(text))
	deltas, err := Deltas([]byte(sections["deltas.json"]))
	if err != nil {
		t.Fatalf("%s: deltas.json: %v", file, err)
	}
	deltarouter.SetConfig([]byte(strings.TrimSpace(sections["config.json"])))
	handle, err := setup()
	if err != nil {
		t.Fatalf("%s: setup: %v", file, err)
	}
	var got bytes.Buffer
	for _, d := range deltas {
		result, err := Result(handle(d))
		if err != nil {
			t.Fatalf("%s: %s: %v", file, d, err)
		}
		got.Write(append(result, '\n'))
	}
	if update {
		if err := os.WriteFile(file, []byte(replace(string(text), "results.json", got.String())), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := compact([]byte(sections["results.json"]))
	if err != nil {
		t.Fatalf("%s: results.json: %v", file, err)
	}
	if got.String() != want {
		t.Errorf("%s:\ngot\n%swant\n%s", file, got.String(), want)
	}
}

// split returns the sections of a txtar text.
func split(text string) map[string]string {
	sections := map[string]string{}
	name := ""
	for line := range strings.SplitAfterSeq(text, "\n") {
		if marked, ok := marker(line); ok {
			name = marked
			continue
		}
		sections[name] += line
	}
	return sections
}

func marker(line string) (name string, ok bool) {
	line, ok = strings.CutPrefix(strings.TrimRight(line, "\r\n"), "-- ")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(line, " --")
}

// replace replaces the text of a section, or appends a section.
func replace(text, section, with string) string {
	var b strings.Builder
	name, done := "", false
	for line := range strings.SplitAfterSeq(text, "\n") {
		if marked, ok := marker(line); ok {
			name = marked
			b.WriteString(line)
			if name == section {
				b.WriteString(with)
				done = true
			}
			continue
		}
		if name != section {
			b.WriteString(line)
		}
	}
	if !done {
		b.WriteString("-- " + section + " --\n" + with)
	}
	return b.String()
}

// values yields the JSON values of a text.
func values(text []byte, each func(json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var value json.RawMessage
		if err := dec.Decode(&value); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(value); err != nil {
			return err
		}
	}
}

// compact returns each JSON value of a text on a line of its own.
func compact(text []byte) (string, error) {
	var b bytes.Buffer
	err := values(text, func(value json.RawMessage) error {
		if err := json.Compact(&b, value); err != nil {
			return err
		}
		return b.WriteByte('\n')
	})
	return b.String(), err
}

// Deltas parses the deltas.json of [Golden].
func Deltas(text []byte) ([]deltarouter.Delta, error) {
	var deltas []deltarouter.Delta
	err := values(text, func(value json.RawMessage) error {
		d, err := parse(value)
		if err != nil {
			return fmt.Errorf("delta %d: %w", len(deltas), err)
		}
		deltas = append(deltas, d)
		return nil
	})
	return deltas, err
}

func parse(text json.RawMessage) (d deltarouter.Delta, err error) {
	in := struct {
		Op        string          `json:"op"`
		Object    json.RawMessage `json:"object"`
		OldObject json.RawMessage `json:"oldObject"`

		Source   string `json:"source"`
		Cluster  string `json:"cluster"`
		Resource string `json:"resource"`

		Initial     bool `json:"initial"`
		Stale       bool `json:"stale"`
		Redelivered bool `json:"redelivered"`

		Late       bool      `json:"late"`
		Repeat     int       `json:"repeat"`
		Since      time.Time `json:"since"`
		Suppressed int       `json:"suppressed"`

		TraceParent string          `json:"traceparent"`
		With        json.RawMessage `json:"with"`

		Event *struct {
			ID      string          `json:"id"`
			Type    string          `json:"type"`
			Source  string          `json:"source"`
			Subject string          `json:"subject"`
			Route   string          `json:"route"`
			Time    time.Time       `json:"time"`
			Data    json.RawMessage `json:"data"`
		} `json:"event"`
	}{Source: "test", Cluster: "test"}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return d, err
	}
	op, ok := deltarouter.ParseOp(in.Op)
	if !ok || in.Object == nil {
		return d, fmt.Errorf("it needs an op (%q is none) and an object", in.Op)
	}
	var object struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Namespace       string `json:"namespace"`
			Name            string `json:"name"`
			UID             string `json:"uid"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(in.Object, &object); err != nil {
		return d, fmt.Errorf("object: %w", err)
	}
	d = deltarouter.Delta{
		Op: op, Source: in.Source, Cluster: in.Cluster, Resource: in.Resource, Kind: object.Kind,
		Namespace: object.Metadata.Namespace, Name: object.Metadata.Name,
		UID: object.Metadata.UID, ResourceVersion: object.Metadata.ResourceVersion,
		Object: in.Object, OldObject: in.OldObject,
		Initial: in.Initial, Stale: in.Stale, Redelivered: in.Redelivered,
		Late: in.Late, Repeat: in.Repeat > 0, Since: in.Since, Suppressed: in.Suppressed, TraceParent: in.TraceParent, With: in.With,
	}
	if e := in.Event; e != nil {
		d.Event = &deltarouter.RouteEvent{ID: e.ID, Type: e.Type, Source: e.Source, Subject: e.Subject, Route: e.Route, Time: e.Time, Data: e.Data}
	}
	if d.OldObject == nil && (op == deltarouter.Deleted || op == deltarouter.Deselected) {
		d.OldObject = d.Object
	}
	return d, nil
}

// Result returns the result of a handler as a line of the results.json of [Golden].
func Result(events []deltarouter.Event, err error) ([]byte, error) {
	var out struct {
		Events []deltarouter.Event `json:"events,omitempty"`
		Drop   bool                `json:"drop,omitempty"`
		Retry  string              `json:"retry,omitempty"`
		Error  string              `json:"error,omitempty"`
	}
	switch {
	case err == nil:
		out.Events = events
	case errors.Is(err, deltarouter.ErrDrop):
		out.Drop = true
	case deltarouter.IsRetry(err):
		out.Retry = err.Error()
	default:
		out.Error = err.Error()
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
