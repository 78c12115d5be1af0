package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// The verbs of an event's data.
const (
	verbApply  = "apply"
	verbCreate = "create"
	verbMerge  = "merge"
	verbJSON   = "json"
	verbDelete = "delete"
	verbEvict  = "evict"
	verbEvent  = "event"
)

const (
	subStatus, subScale = "status", "scale"
	// maxOperations is the maximum number of operations in one event.
	maxOperations = 1000
)

// operation is one write of an event.
type operation struct {
	verb        string
	subresource string // empty: the object itself
	target      target
	own         bool // the target is the object of the delta
	ignore      bool // a missing target is not an error
	force       bool // an apply takes fields over from other managers
	tests       bool // a JSON patch tests the state of the object
	body        json.RawMessage
	grace       *int64
	propagation string
	note        note // for verbEvent
}

// removes reports whether the operation removes an object.
func (o *operation) removes() bool { return o.verb == verbDelete || o.verb == verbEvict }

// String describes the operation and its target, without content.
func (o *operation) String() string {
	if o.subresource != "" {
		return o.verb + " " + o.subresource + " of " + o.target.String()
	}
	return o.verb + " " + o.target.String()
}

// target identifies the object of an operation. If the object names a kind, the resource is
// resolved later.
type target struct {
	group, version, resource, kind string
	namespace, name, uid           string
}

func (t *target) resourceText() string {
	name := t.resource
	if name == "" {
		name = t.kind
	}
	if t.group == "" {
		return t.version + "/" + name
	}
	return t.group + "/" + t.version + "/" + name
}

// String names the object.
func (t target) String() string {
	key := event.Key{Namespace: t.namespace, Name: t.name}
	return t.resourceText() + " " + key.String()
}

// object identifies an object independent of the version of its resource.
func (t *target) object() string {
	// none of them contains a slash
	return strings.Join([]string{t.group, t.resource, t.namespace, t.name}, "/")
}

// where returns the namespace for grants. A Namespace is in itself.
func (t *target) where() string {
	if t.group == "" && t.resource == "namespaces" {
		return t.name
	}
	return t.namespace
}

// isSecret reports whether the content of the object must not be shown.
func (t *target) isSecret() bool {
	return t.group == "" && (t.resource == "secrets" || t.kind == "Secret")
}

func (t *target) check(place string) error {
	for what, text := range map[string]string{"name": t.name, "namespace": t.namespace} {
		if len(text) > 253 || len(content.IsPathSegmentName(text)) > 0 {
			return fmt.Errorf("%s.%s: cannot be the %s of an object", place, what, what)
		}
	}
	return nil
}

// parse parses the operations of an event. Its errors name the position and never quote a value.
func parse(e *event.Event) ([]operation, error) {
	data := bytes.TrimSpace(e.Data)
	// the router and the API server must read the same content
	if err := rawjson.Check(string(data)); err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if !bytes.HasPrefix(data, []byte("[")) {
		op, err := parseOperation("data", data, e)
		return []operation{op}, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, errors.New("data: is not JSON")
	}
	if len(list) > maxOperations {
		return nil, fmt.Errorf("data: has %d operations, at most %d are allowed: make several events", len(list), maxOperations)
	}
	ops := make([]operation, len(list))
	for i, item := range list {
		var err error
		if ops[i], err = parseOperation(fmt.Sprintf("data[%d]", i), item, e); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// takes returns the keys that are allowed beside a verb.
func takes(verb string) []string {
	switch verb {
	case verbApply:
		return []string{"subresource"}
	case verbMerge, verbJSON:
		return []string{"target", "subresource", "missing"}
	case verbDelete, verbEvict, verbEvent:
		return []string{"target"}
	}
	return nil
}

func verbs() []string {
	return []string{verbApply, verbCreate, verbMerge, verbJSON, verbDelete, verbEvict, verbEvent}
}

func parseOperation(place string, raw json.RawMessage, e *event.Event) (op operation, err error) {
	all, err := members(place, raw)
	if err != nil {
		return op, err
	}
	for _, verb := range verbs() {
		if _, ok := all[verb]; ok && op.verb != "" {
			return op, fmt.Errorf("%s: says both %s and %s: an operation has one verb; write a list of two operations", place, op.verb, verb)
		} else if ok {
			op.verb = verb
		}
	}
	if op.verb == "" {
		return op, noVerb(place, all)
	}
	if err := known(place, all, append(takes(op.verb), op.verb)...); err != nil {
		return op, err
	}
	if err := op.parseSubresource(place, all["subresource"]); err != nil {
		return op, err
	}
	if err := op.parseTarget(place, all["target"], e); err != nil {
		return op, err
	}
	op.ignore = op.own
	if raw, ok := all["missing"]; ok {
		word, err := choice(place+".missing", raw, "ignore", "reject")
		if err != nil {
			return op, err
		}
		op.ignore = word == "ignore"
	}
	err = op.parseBody(place+"."+op.verb, all[op.verb])
	return op, err
}

func noVerb(place string, all map[string]json.RawMessage) error {
	hint := ""
	if _, ok := all["op"]; ok && all["object"] != nil {
		hint = "; this is the delta itself: give the route an emit or a handler that says what to do"
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains([]string{"target", "subresource", "missing"}, key) && hint == "" {
			hint = "; " + clip(key) + " is none" + config.Suggest(clip(key), verbs())
		}
	}
	return fmt.Errorf("%s: says none of %s%s", place, strings.Join(verbs(), ", "), hint)
}

func (o *operation) parseSubresource(place string, raw json.RawMessage) (err error) {
	switch {
	case raw == nil:
	case o.verb == verbApply:
		o.subresource, err = choice(place+".subresource", raw, subStatus)
	default:
		o.subresource, err = choice(place+".subresource", raw, subStatus, subScale)
	}
	return err
}

// parseTarget parses the target. The default is the object of the delta.
func (o *operation) parseTarget(place string, raw json.RawMessage, e *event.Event) error {
	if raw != nil {
		return o.target.parse(place+".target", raw)
	}
	if o.verb == verbCreate {
		return nil // the body names the target
	}
	if e.Of == nil || e.Of.Object() == nil {
		if o.verb == verbApply {
			return nil
		}
		return fmt.Errorf("%s: the event has no object, so the operation needs a target", place)
	}
	object := e.Of.Object()
	of := object.Resource()
	o.own = true
	o.target = target{
		group: of.Group, version: of.Version, resource: of.Resource, kind: of.Kind,
		namespace: object.Key().Namespace, name: object.Key().Name, uid: object.UID(),
	}
	return nil
}

func (t *target) parse(place string, raw json.RawMessage) error {
	all, err := members(place, raw)
	if err != nil {
		return err
	}
	if err := known(place, all, "resource", "namespace", "name", "uid"); err != nil {
		return err
	}
	var resource string
	for key, into := range map[string]*string{"resource": &resource, "namespace": &t.namespace, "name": &t.name, "uid": &t.uid} {
		if raw, ok := all[key]; ok {
			if *into, err = text(place+"."+key, raw); err != nil {
				return err
			}
		}
	}
	if t.name == "" {
		return fmt.Errorf("%s: name is missing", place)
	}
	if resource == "" {
		return fmt.Errorf("%s: resource is missing, as in apps/v1/deployments", place)
	}
	if t.group, t.version, t.resource, err = parseResource(resource); err != nil {
		return fmt.Errorf("%s.resource: %w", place, err)
	}
	return t.check(place)
}

// parseBody parses the value of the verb.
func (o *operation) parseBody(place string, raw json.RawMessage) error {
	switch o.verb {
	case verbApply, verbCreate:
		return o.parseObject(place, raw)
	case verbJSON:
		return o.parsePatch(place, raw)
	case verbMerge:
		all, err := members(place, raw)
		if err != nil {
			return err
		}
		return o.pin(all)
	case verbEvent:
		return o.note.parse(place, raw)
	}
	return o.parseOptions(place, raw)
}

// parseOptions parses the options of a delete or an eviction.
func (o *operation) parseOptions(place string, raw json.RawMessage) error {
	all, err := members(place, raw)
	if err != nil {
		return err
	}
	keys := []string{"gracePeriodSeconds"}
	if o.verb == verbDelete {
		keys = append(keys, "propagation")
	}
	if err := known(place, all, keys...); err != nil {
		return err
	}
	if raw, ok := all["gracePeriodSeconds"]; ok {
		seconds, err := whole(place+".gracePeriodSeconds", raw)
		if err != nil {
			return err
		}
		o.grace = &seconds
	}
	if raw, ok := all["propagation"]; ok {
		if o.propagation, err = choice(place+".propagation", raw, "background", "foreground", "orphan"); err != nil {
			return err
		}
		o.propagation = strings.ToUpper(o.propagation[:1]) + o.propagation[1:]
	}
	if o.verb == verbEvict && (o.target.group != "" || o.target.resource != "pods") {
		return fmt.Errorf("%s: only v1/pods can be evicted, not %s", place, o.target.resourceText())
	}
	return nil
}

// pin adds the uid of the target to a patch, so that the API server rejects it for another object
// of that name.
func (o *operation) pin(all map[string]json.RawMessage) (err error) {
	if o.target.uid != "" {
		metadata := map[string]json.RawMessage{}
		if raw, ok := all["metadata"]; ok {
			if metadata, err = members(o.verb+".metadata", raw); err != nil {
				return err
			}
		}
		if metadata["uid"], err = json.Marshal(o.target.uid); err != nil {
			return err
		}
		if all["metadata"], err = json.Marshal(metadata); err != nil {
			return err
		}
	}
	o.body, err = json.Marshal(all)
	return err
}

// parsePatch parses a JSON patch, and adds a test of the target's uid as its first operation, see
// pin.
func (o *operation) parsePatch(place string, raw json.RawMessage) (err error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return fmt.Errorf("%s: must be a list of operations of a JSON patch (RFC 6902)", place)
	}
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", place, i)
		all, err := members(at, item)
		if err != nil {
			return err
		}
		if err := known(at, all, "op", "path", "from", "value"); err != nil {
			return err
		}
		op, err := choice(at+".op", all["op"], "add", "remove", "replace", "move", "copy", "test")
		if err != nil {
			return err
		}
		o.tests = o.tests || op == "test"
		needed := map[string]string{"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from"}[op]
		for _, key := range []string{"path", needed} {
			if _, ok := all[key]; key != "" && !ok {
				return fmt.Errorf("%s: %s is missing", at, key)
			}
		}
	}
	if o.target.uid != "" {
		test := fmt.Sprintf(`{"op":"test","path":"/metadata/uid","value":%s}`, rawjson.Quote(o.target.uid))
		list = slices.Insert(list, 0, json.RawMessage(test))
	}
	o.body, err = json.Marshal(list)
	return err
}
