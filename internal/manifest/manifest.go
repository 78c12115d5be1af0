// Package manifest converts Kubernetes objects between YAML and JSON, as kubectl does.
package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// ToJSON returns the JSON of one Kubernetes object in YAML or JSON, read like kubectl does: nothing
// is expanded, and the bools of YAML 1.1 are bools. JSON is returned unchanged.
func ToJSON(text []byte) ([]byte, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
	if bytes.HasPrefix(text, []byte("{")) && json.Valid(text) {
		return text, nil
	}
	text = bytes.TrimPrefix(text, []byte("---\n"))
	if bytes.Contains(text, []byte("\n---")) {
		return nil, errors.New("there are several documents: give one object")
	}
	object, err := yaml.YAMLToJSON(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
	case !bytes.HasPrefix(object, []byte("{")):
		return nil, errors.New("no mapping with apiVersion, kind and metadata")
	}
	return object, nil
}

// Objects returns the JSON of each object in a text of YAML documents, or of JSON. The objects of
// lists (kind List, PodList, …) stand by themselves.
func Objects(text []byte) (all [][]byte, err error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
		}
		if onlyComments(document) {
			continue
		}
		object, err := ToJSON(document)
		if err != nil {
			return nil, err
		}
		var list struct {
			Kind  string            `json:"kind"`
			Items []json.RawMessage `json:"items"`
		}
		if json.Unmarshal(object, &list) != nil || !strings.HasSuffix(list.Kind, "List") || list.Items == nil {
			all = append(all, object)
			continue
		}
		for _, item := range list.Items {
			all = append(all, item)
		}
	}
}

// onlyComments reports whether a document has no content.
func onlyComments(document []byte) bool {
	for line := range bytes.Lines(document) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// ToYAML returns the YAML of an object's JSON with sorted keys.
func ToYAML(object []byte) ([]byte, error) { return yaml.JSONToYAML(object) }
