// Command calls calls every host function, see ../../README.md.
package main

import (
	"encoding/json"
	"errors"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

var _ = deltarouter.Setup(setup)

func main() {}

func setup() (deltarouter.Handler, error) {
	var config struct {
		URL string `json:"url"`
	}
	if err := deltarouter.Config(&config); err != nil {
		return nil, err
	}
	return func(d deltarouter.Delta) ([]deltarouter.Event, error) { return calls(d, config.URL) }, nil
}

func calls(d deltarouter.Delta, url string) ([]deltarouter.Event, error) {
	seen, _, err := deltarouter.KVGet(d.Name)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(deltarouter.KVSet(d.Name, append(seen, 'x'), 0), deltarouter.KVSet("gone", nil, 0), deltarouter.KVDelete("gone")); err != nil {
		return nil, err
	}
	objects, err := deltarouter.Lookup("pods.byNode", "n1")
	if err != nil {
		return nil, err
	}
	count, err := deltarouter.Count("pods.byNode", "n1")
	if err != nil {
		return nil, err
	}
	all, err := deltarouter.List("nodes")
	if err != nil {
		return nil, err
	}
	one, err := deltarouter.Get("nodes", "", "n1")
	if err != nil {
		return nil, err
	}
	none, err := deltarouter.Get("nodes", "", "n9")
	if err != nil {
		return nil, err
	}
	_, denied := deltarouter.Lookup("secrets.byName", "x")
	answer, err := deltarouter.HTTP(deltarouter.Request{Method: "POST", URL: url, Body: []byte("é"), Headers: map[string]string{"X-Ask": "1"}})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(deltarouter.Random(make([]byte, 8)), d.Emit(deltarouter.Event{Type: "early", Data: d.Name})); err != nil {
		return nil, err
	}
	return []deltarouter.Event{{Data: map[string]any{
		"bytes": len(answer.Body), "count": count, "denied": errors.Is(denied, deltarouter.ErrDenied), "header": answer.Headers["x-answer"],
		"list": len(all), "none": none == nil, "one": name(one), "path": d.Path("metadata.name"), "pods": []string{name(objects[0]), name(objects[1])},
		"seen": string(seen), "status": answer.Status,
	}}}, nil
}

func name(object json.RawMessage) string {
	var o struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(object, &o)
	return o.Metadata.Name
}
