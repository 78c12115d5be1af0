package config

import (
	"bytes"
	"encoding/json"
	"math/big"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// JSON returns the YAML of the node as JSON. It keeps the order of the keys, expands ${…}, and
// keeps all digits of numbers. An unquoted scalar with a ${…} gets the type of its expanded text.
// The error is [Problems]: a variable that is not set, or a number that JSON does not have (.inf,
// .nan).
func (n Node) JSON() ([]byte, error) {
	var e jsonEncoder
	e.value(n)
	return e.b.Bytes(), e.problems.Err()
}

type jsonEncoder struct {
	b        bytes.Buffer
	problems Problems
}

func (e *jsonEncoder) value(n Node) {
	switch {
	case n.IsZero():
		e.b.WriteString("null")
	case n.yaml.Kind == yaml.MappingNode:
		e.b.WriteByte('{')
		for i, entry := range n.entries() {
			if i > 0 {
				e.b.WriteByte(',')
			}
			e.text(entry.key)
			e.b.WriteByte(':')
			e.value(entry.value)
		}
		e.b.WriteByte('}')
	case n.yaml.Kind == yaml.SequenceNode:
		e.b.WriteByte('[')
		for i, item := range n.Items() {
			if i > 0 {
				e.b.WriteByte(',')
			}
			e.value(item)
		}
		e.b.WriteByte(']')
	default:
		e.scalar(n)
	}
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func (e *jsonEncoder) scalar(n Node) {
	text, problems := n.text()
	e.problems = append(e.problems, problems...)
	if n.isQuoted() {
		e.text(text)
		return
	}
	tag := n.yaml.Tag
	if text != n.yaml.Value {
		tag = (&yaml.Node{Kind: yaml.ScalarNode, Value: text}).ShortTag()
	}
	switch tag {
	case "!!null":
		e.b.WriteString("null")
	case "!!bool":
		e.b.WriteString(strings.ToLower(text))
	case "!!int", "!!float":
		e.number(n, text)
	default:
		e.text(text)
	}
}

// number writes a number unchanged if it is valid JSON, or else converts it (0x10, 1_000, .5).
func (e *jsonEncoder) number(n Node, text string) {
	if jsonNumber.MatchString(text) {
		e.b.WriteString(text)
		return
	}
	if i, ok := new(big.Int).SetString(text, 0); ok {
		e.b.WriteString(i.String())
		return
	}
	var f float64
	if (&yaml.Node{Kind: yaml.ScalarNode, Value: text}).Decode(&f) == nil {
		if data, err := json.Marshal(f); err == nil {
			e.b.Write(data)
			return
		}
	}
	e.problems = append(e.problems, n.Problemf("is a number that JSON does not have: put it in quotes"))
	e.b.WriteString("null")
}

func (e *jsonEncoder) text(s string) {
	encoder := json.NewEncoder(&e.b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a string never fails
	e.b.Truncate(e.b.Len() - 1)
}
