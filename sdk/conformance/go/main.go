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

// object is the reported part of an object.
type object struct {
	Metadata struct {
		Labels      map[string]string          `json:"labels"`
		Annotations map[string]json.RawMessage `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Replicas int64 `json:"replicas"`
	} `json:"spec"`
}

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
	var before, after object
	if err := json.Unmarshal(d.Object, &after); err != nil {
		return nil, err
	}
	if d.Op == deltarouter.Updated {
		if err := json.Unmarshal(d.OldObject, &before); err != nil {
			return nil, err
		}
	}
	switch text(after.Metadata.Annotations["verdict"]) {
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
	says := text(after.Metadata.Annotations[note])
	data := map[string]any{"op": d.Op.String(), "object": name, "labels": len(after.Metadata.Labels), "note": says}
	if d.Op == deltarouter.Updated && before.Spec.Replicas != after.Spec.Replicas {
		data["replicas"] = []int64{before.Spec.Replicas, after.Spec.Replicas}
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
	if e := d.Event; e != nil {
		var made struct {
			Team string `json:"team"`
		}
		if err := json.Unmarshal(e.Data, &made); err != nil {
			return nil, err
		}
		data["event"] = fmt.Sprint(e.ID, " ", e.Type, " ", e.Source, " ", e.Subject, " ", e.Route, " ", e.Time.Unix(), " ", made.Team)
	}
	e := deltarouter.Event{Type: "summary", Data: data}
	if says == "" {
		e.Subject = "nothing to say"
	}
	return []deltarouter.Event{e}, nil
}

// text returns the text of a JSON string, or an empty text for any other value.
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}
