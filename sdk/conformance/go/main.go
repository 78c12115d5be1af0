// Command summary is the handler that every SDK has, see ../README.md.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

var _ = deltarouter.Setup(setup)

func main() {}

func setup() (deltarouter.Handler, error) {
	var config struct {
		Note string `json:"note"` // the reported annotation
	}
	if err := deltarouter.Config(&config); err != nil {
		return nil, err
	}
	if config.Note == "" {
		return nil, errors.New("config: note is missing")
	}
	return func(d deltarouter.Delta) ([]deltarouter.Event, error) { return summary(d, config.Note) }, nil
}

func summary(d deltarouter.Delta, note string) ([]deltarouter.Event, error) {
	annotations := d.Path("metadata.annotations")
	switch annotations.Path("verdict").Text() {
	case "fail":
		return nil, errors.New("as you wish")
	case "retry":
		return nil, deltarouter.Retry(errors.New("later"), 90*time.Second)
	case "drop":
		return nil, deltarouter.ErrDrop
	}
	name := d.Name
	if d.Namespace != "" {
		name = d.Namespace + "/" + d.Name
	}
	var notes map[string]json.RawMessage
	if annotations != nil {
		if err := annotations.Decode(&notes); err != nil {
			return nil, err
		}
	}
	says := deltarouter.Value(notes[note]).Text()
	var labels map[string]string
	if l := d.Path("metadata.labels"); l != nil {
		if err := l.Decode(&labels); err != nil {
			return nil, err
		}
	}
	data := map[string]any{"op": d.Op.String(), "object": name, "labels": len(labels), "note": says}
	before, _ := d.OldPath("spec.replicas").Int()
	after, _ := d.Path("spec.replicas").Int()
	if d.Op == deltarouter.Updated && before != after {
		data["replicas"] = []int64{before, after}
	}
	if team := d.Path(`metadata.annotations.example\.com/team`).Text(); team != "" {
		data["team"] = team
	}
	if d.Late {
		data["late"] = true
	}
	if d.Repeat {
		data["repeat"] = true
	}
	if !d.Since.IsZero() {
		data["since"] = d.Since.Unix()
	}
	if d.Suppressed > 0 {
		data["suppressed"] = d.Suppressed
	}
	if d.TraceParent != "" {
		data["traceparent"] = d.TraceParent
	}
	if err := more(d, data); err != nil {
		return nil, err
	}
	e := deltarouter.Event{Type: "summary", Data: data}
	if says == "" {
		e.Subject = "nothing to say"
	}
	return []deltarouter.Event{e}, nil
}

// more adds the values of with, and the event of another route.
func more(d deltarouter.Delta, data map[string]any) error {
	if d.With != nil {
		var with struct {
			Pods int `json:"pods"`
		}
		if err := json.Unmarshal(d.With, &with); err != nil {
			return err
		}
		data["with"] = with.Pods
	}
	if e := d.Event; e != nil {
		var made struct {
			Team string `json:"team"`
		}
		if err := json.Unmarshal(e.Data, &made); err != nil {
			return err
		}
		data["event"] = fmt.Sprint(e.ID, " ", e.Type, " ", e.Source, " ", e.Subject, " ", e.Route, " ", e.Time.Unix(), " ", made.Team)
	}
	return nil
}
