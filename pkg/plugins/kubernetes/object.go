package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// parseObject parses the object of an apply or create. An applied object without a name is the
// object of the delta.
func (o *operation) parseObject(place string, raw json.RawMessage) error {
	raw, err := plain(raw)
	if err != nil {
		return fmt.Errorf("%s: is not JSON", place)
	}
	all, err := members(place, raw)
	if err != nil {
		return err
	}
	metadata := map[string]json.RawMessage{}
	if raw, ok := all["metadata"]; ok {
		if metadata, err = members(place+".metadata", raw); err != nil {
			return err
		}
	}
	if _, ok := metadata["generateName"]; ok {
		return fmt.Errorf("%s.metadata.generateName: each repetition of the event would make another object: write metadata.name", place)
	}
	said := false
	for _, raw := range []json.RawMessage{all["apiVersion"], all["kind"], metadata["name"], metadata["namespace"]} {
		said = said || raw != nil
	}
	if !said && o.own && o.verb == verbApply {
		o.body, err = json.Marshal(all)
		return err // complete adds the rest when the kind is known
	}
	if err := o.name(place, all, metadata); err != nil {
		return err
	}
	o.body = raw
	return nil
}

// name sets the target to the object that the metadata name.
func (o *operation) name(place string, all, metadata map[string]json.RawMessage) (err error) {
	var apiVersion string
	t := target{}
	for _, member := range []struct {
		in       map[string]json.RawMessage
		key      string
		into     *string
		required bool
	}{
		{all, "apiVersion", &apiVersion, true},
		{all, "kind", &t.kind, true},
		{metadata, "name", &t.name, true},
		{metadata, "namespace", &t.namespace, false},
		{metadata, "uid", &t.uid, false},
	} {
		at := place + "." + member.key
		if member.key == "name" || member.key == "namespace" || member.key == "uid" {
			at = place + ".metadata." + member.key
		}
		raw, ok := member.in[member.key]
		if ok {
			if *member.into, err = text(at, raw); err != nil {
				return err
			}
		}
		if member.required && *member.into == "" {
			return fmt.Errorf("%s: is missing", at)
		}
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Version == "" {
		return fmt.Errorf("%s.apiVersion: must be v1 or group/version", place)
	}
	t.group, t.version = gv.Group, gv.Version
	o.own, o.ignore, o.target = false, false, t
	return t.check(place + ".metadata")
}

// complete adds the identity of the applied object to it, with its uid: a new object of that name
// must not be changed.
func (o *operation) complete() error {
	if o.verb != verbApply || !o.own {
		return nil
	}
	all, err := members("data.apply", o.body)
	if err != nil {
		return err
	}
	metadata := map[string]json.RawMessage{}
	if raw, ok := all["metadata"]; ok {
		if metadata, err = members("data.apply.metadata", raw); err != nil {
			return err
		}
	}
	set := func(in map[string]json.RawMessage, key, value string) {
		if value != "" {
			in[key] = json.RawMessage(rawjson.Quote(value))
		}
	}
	set(all, "apiVersion", schema.GroupVersion{Group: o.target.group, Version: o.target.version}.String())
	set(all, "kind", o.target.kind)
	set(metadata, "name", o.target.name)
	set(metadata, "namespace", o.target.namespace)
	set(metadata, "uid", o.target.uid)
	if all["metadata"], err = json.Marshal(metadata); err != nil {
		return err
	}
	o.body, err = json.Marshal(all)
	return err
}

// note is an Event to create.
type note struct{ kind, reason, text, action string }

// maxNote is the maximum length of a note at the API server.
const maxNote = 1024

func (n *note) parse(place string, raw json.RawMessage) error {
	all, err := members(place, raw)
	if err != nil {
		return err
	}
	if err := known(place, all, "type", "reason", "note", "action"); err != nil {
		return err
	}
	for key, into := range map[string]*string{"reason": &n.reason, "note": &n.text, "action": &n.action} {
		if raw, ok := all[key]; ok {
			if *into, err = text(place+"."+key, raw); err != nil {
				return err
			}
		}
	}
	n.kind = "Normal"
	if raw, ok := all["type"]; ok {
		if n.kind, err = choice(place+".type", raw, "Normal", "Warning"); err != nil {
			return err
		}
	}
	if n.reason == "" {
		return fmt.Errorf("%s: reason is missing", place)
	}
	if n.action == "" {
		n.action = n.reason
	}
	for len(n.text) > maxNote {
		_, size := utf8.DecodeLastRuneInString(n.text)
		n.text = n.text[:len(n.text)-size]
	}
	return nil
}

// plain returns JSON that is also valid YAML with the same meaning, because the API server parses
// an apply as YAML: without white space, without surrogates, and without characters that YAML does
// not allow in strings or interprets differently.
func plain(raw json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var out []byte // nil: text is used unchanged
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if 0x7f <= r && r <= 0x9f || r == 0xfeff || r == 0xfffe || r == 0xffff {
			if out == nil {
				out = append(make([]byte, 0, len(text)+64), text[:i]...)
			}
			out = fmt.Appendf(out, `\u%04x`, r)
		} else if out != nil {
			out = append(out, text[i:i+size]...)
		}
		i += size
	}
	if out == nil {
		out = text
	}
	return out, nil
}

// The functions below read JSON by exact keys, and report the position of mistakes.

// members parses an object.
func members(place string, raw json.RawMessage) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil || all == nil {
		return nil, fmt.Errorf("%s: must be an object", place)
	}
	return all, nil
}

// known returns an error for the first key that is not in keys.
func known(place string, all map[string]json.RawMessage, keys ...string) error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(keys, key) {
			return fmt.Errorf("%s.%s: unknown key%s", place, clip(key), config.Suggest(clip(key), keys))
		}
	}
	return nil
}

func text(place string, raw json.RawMessage) (s string, err error) {
	if raw == nil || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", fmt.Errorf("%s: must be text", place)
	}
	return s, nil
}

func choice(place string, raw json.RawMessage, words ...string) (string, error) {
	s, err := text(place, raw)
	if err != nil || !slices.Contains(words, s) {
		return "", fmt.Errorf("%s: must be one of %s", place, strings.Join(words, ", "))
	}
	return s, nil
}

func whole(place string, raw json.RawMessage) (n int64, err error) {
	if json.Unmarshal(raw, &n) != nil || n < 0 || string(raw) == "null" {
		return 0, fmt.Errorf("%s: must be a whole number, 0 or more", place)
	}
	return n, nil
}

// clip shortens a key for an error.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
