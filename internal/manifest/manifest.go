// Package manifest converts Kubernetes objects between YAML and JSON, as kubectl does.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

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

// ToYAML returns the YAML of an object's JSON with sorted keys.
func ToYAML(object []byte) ([]byte, error) { return yaml.JSONToYAML(object) }
