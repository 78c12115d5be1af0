package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	invalid "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins/process/internal/child"
)

// errSchema is wrapped by the error of a schema that cannot be used.
var errSchema = errors.New("the plugin's config_schema cannot be used")

// checkConfig compares a plugin's configuration (JSON) with the schema of the plugin. Problems have
// positions below node. An absent configuration is an empty one. The error wraps errSchema if the
// schema is invalid.
func checkConfig(schema, text string, node config.Node) (problems config.Problems, err error) {
	if strings.TrimSpace(schema) == "" {
		return nil, nil
	}
	var s spec.Schema
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		return nil, fmt.Errorf("%w: %w", errSchema, err)
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, err
	}
	if value == nil {
		value = map[string]any{}
	}
	defer func() {
		if p := recover(); p != nil { // the library panics for a $ref
			err = fmt.Errorf("%w: %v", errSchema, p)
		}
	}()
	for _, e := range validate.NewSchemaValidator(&s, nil, "", strfmt.Default).Validate(value).Errors {
		if p, ok := problem(e, node); ok {
			problems = append(problems, p)
		}
	}
	return problems, nil
}

// problem converts an error of the validator to our own words, without the value. ok is false for
// an error that the validator reports twice.
func problem(e error, node config.Node) (p config.Problem, ok bool) {
	var about *invalid.Validation
	if errors.As(e, &about) {
		name, message, _ := strings.Cut(about.Error(), " in "+about.In+" ")
		if about.Code() == invalid.InvalidTypeCode { // it ends with the value: "…"
			message, _, _ = strings.Cut(message, `: "`)
		}
		return find(node, name).Problemf("%s", printable.Text(message, child.TailSize)), true
	}
	var coded invalid.Error
	if !errors.As(e, &coded) {
		return p, false
	}
	message := coded.Error() // "names[0]" must validate …
	if quoted, err := strconv.QuotedPrefix(message); err == nil {
		message = strings.TrimSpace(message[len(quoted):])
		name, _ := strconv.Unquote(quoted)
		node = find(node, name)
	}
	return node.Problemf("%s", printable.Text(message, child.TailSize)), true
}

// find returns the node for the validator's name, such as names[0].key. Keys may contain dots. If
// the node does not exist, it returns the last existing node on the path, or a missing one.
func find(node config.Node, name string) config.Node {
	name = strings.TrimPrefix(name, ".")
	if name == "" {
		return node
	}
	if index, rest, ok := strings.Cut(strings.TrimPrefix(name, "["), "]"); ok && name[0] == '[' {
		if i, err := strconv.Atoi(index); err == nil && i < len(node.Items()) {
			return find(node.Items()[i], rest)
		}
		return node
	}
	longest := ""
	for _, key := range node.Keys() {
		if rest, ok := strings.CutPrefix(name, key); ok && len(key) > len(longest) && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			longest = key
		}
	}
	if longest == "" {
		return node.At(name)
	}
	return find(node.At(longest), name[len(longest):])
}
