package cases

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// step is a change of one object, or a restart.
type step struct {
	at       time.Duration
	what     string        // added, updated, deleted, sync or restart
	down     time.Duration // duration of a restart
	resource string        // as in the configuration
	key      event.Key
	text     string // the object in JSON; for deleted its last state
}

// object is a decoded object.
type object = map[string]any

// script executes the given deltas of a case in memory. It reports impossible ones and computes the
// state of each object at each step.
type script struct {
	*checker

	t       *testCase
	kinds   map[string]string            // by resource, for all cases of the file
	now     map[string]map[string]object // by resource and key
	version int
	made    int           // number of generated uids
	up      time.Duration // end of the last restart
}

func (s *script) write() {
	objects := s.t.Given.Objects
	s.t.list = make(map[string][]string)
	for _, source := range slices.Sorted(maps.Keys(objects)) {
		at := s.t.Node.At("given").At("objects").At(source)
		resource := s.source(at, source)
		if resource == "" {
			continue
		}
		for _, n := range objects[source] {
			if o := s.add(resource, n, n); o != nil {
				s.t.list[resource] = append(s.t.list[resource], textOf(o))
			}
		}
	}
	s.t.version = strconv.Itoa(s.version)
	var before time.Duration
	for _, d := range s.t.Given.Deltas {
		if d.At < before {
			if slices.Contains(d.Node.Keys(), "at") {
				s.problemf(d.Node.At("at"), "is before the delta above, at %s: time does not go back", short(before))
			}
			d.At = before // the time of the delta before
		}
		before = d.At
		s.delta(d)
	}
}

// source returns the resource of a source. It reports a problem and returns "" if there is no
// source of that name.
func (s *script) source(at config.Node, name string) string {
	if source := s.cfg.Sources[name]; source != nil {
		return source.Resource
	}
	s.problemf(at, "unknown source %q%s", name, config.Suggest(name, slices.Sorted(maps.Keys(s.cfg.Sources))))
	return ""
}

// restart executes a restart.
func (s *script) restart(d *delta) {
	switch keys := d.Node.Keys(); {
	case slices.ContainsFunc(keys, func(key string) bool { return key != "at" && key != "restart" }):
		s.problemf(d.Node, "restart concerns the router: it has no other key than at")
	case d.At < s.up:
		s.problemf(d.Node, "the router is down until %s", short(s.up))
	}
	s.up = d.At + d.Restart.Down
	s.t.restarts = true
	s.t.steps = append(s.t.steps, step{at: d.At, what: "restart", down: d.Restart.Down})
}

// delta executes a delta.
func (s *script) delta(d *delta) {
	if d.Restart != nil {
		s.restart(d)
		return
	}
	resource := s.sourceOf(d)
	what := slices.DeleteFunc(d.Node.Keys(), func(key string) bool { return key == "at" || key == "source" })
	if len(what) != 1 {
		s.problemf(d.Node, "must have one of added, updated, deleted, sync and restart")
		return
	}
	if resource == "" {
		return
	}
	next := step{at: d.At, what: what[0], resource: resource}
	var o object
	switch next.what {
	case "added":
		o = s.add(resource, d.Added, d.Added)
	case "updated":
		o = s.update(resource, d.Updated)
	case "deleted":
		o = s.existing(resource, d.Node.At("deleted"), d.Deleted)
		if o != nil {
			delete(s.now[resource], keyOf(o).String())
			s.number(o)
		}
	default:
		o = s.existing(resource, d.Node.At("sync"), d.Sync)
	}
	if o != nil {
		next.key, next.text = keyOf(o), textOf(o)
		s.t.steps = append(s.t.steps, next)
	}
}

// sourceOf returns the resource of a delta.
func (s *script) sourceOf(d *delta) string {
	if slices.Contains(d.Node.Keys(), "source") {
		return s.source(d.Node.At("source"), d.Source)
	}
	names := slices.Sorted(maps.Keys(s.cfg.Sources))
	if len(names) > 1 {
		s.problemf(d.Node, "source is missing: name one of %s", strings.Join(names, ", "))
		return ""
	}
	return s.cfg.Sources[names[0]].Resource
}

// existing returns an object by its name. It reports a problem and returns nil if there is none.
func (s *script) existing(resource string, at config.Node, name string) object {
	if o := s.now[resource][name]; o != nil {
		return o
	}
	s.problemf(at, "there is no object %q at that moment%s", name, suggest(name, s.now[resource]))
	return nil
}

func suggest(name string, there map[string]object) string {
	if len(there) == 0 {
		return ": none was added"
	}
	return config.Suggest(name, slices.Sorted(maps.Keys(there)))
}

// add reads a new object. It returns nil after a problem.
func (s *script) add(resource string, n, at config.Node) object {
	o := s.object(resource, n)
	if o == nil {
		return nil
	}
	key := keyOf(o).String()
	if s.now[resource][key] != nil {
		s.problemf(at, "%s exists already: write updated", key)
		return nil
	}
	s.put(resource, o)
	return o
}

// update reads the new state of an object.
func (s *script) update(resource string, n config.Node) object {
	patch, ok := s.mapping(n)
	if !ok {
		return nil
	}
	metadata, _ := patch["metadata"].(object)
	name, _ := metadata["name"].(string)
	if name == "" {
		s.problemf(n, "metadata.name is missing: it identifies the object")
		return nil
	}
	old := s.existing(resource, n, keyOf(patch).String())
	if old == nil {
		return nil
	}
	var o object
	if patch["kind"] == nil && patch["apiVersion"] == nil {
		o, _ = merge(old, patch).(object)
	} else if o = s.object(resource, n); o == nil {
		return nil
	}
	if m := o["metadata"].(object); m["uid"] == nil {
		m["uid"] = old["metadata"].(object)["uid"]
	}
	s.put(resource, o)
	return o
}

// object reads a whole object. It returns nil after a problem.
func (s *script) object(resource string, n config.Node) object {
	o, ok := s.mapping(n)
	if !ok {
		return nil
	}
	metadata, _ := o["metadata"].(object)
	if name, _ := metadata["name"].(string); name == "" {
		s.problemf(n, "metadata.name is missing or is not text: write an object as kubectl get -o yaml does")
		return nil
	}
	for _, field := range []string{"namespace", "uid"} {
		if _, text := metadata[field].(string); metadata[field] != nil && !text {
			s.problemf(n.At("metadata").At(field), "must be text")
			return nil
		}
	}
	version := resource[:strings.LastIndex(resource, "/")]
	if o["apiVersion"] == nil {
		o["apiVersion"] = version
	} else if o["apiVersion"] != version {
		s.problemf(n.At("apiVersion"), "is %v, but the source watches %s", o["apiVersion"], resource)
		return nil
	}
	if kind, ok := o["kind"].(string); ok {
		s.kinds[resource] = kind
	}
	return o
}

// mapping reads a mapping.
func (s *script) mapping(n config.Node) (object, bool) {
	value, err := valueOf(n)
	if err != nil {
		s.problems = append(s.problems, problemsOf(n, err)...)
		return nil, false
	}
	o, ok := value.(object)
	if !ok {
		s.problemf(n, "must be an object, as kubectl get -o yaml writes it")
	}
	return o, ok
}

// put sets the present state of an object. It adds a new resourceVersion, and a uid if there is
// none.
func (s *script) put(resource string, o object) {
	metadata := o["metadata"].(object)
	if metadata["uid"] == nil {
		s.made++
		metadata["uid"] = fmt.Sprintf("uid-%d", s.made)
	}
	s.number(o)
	if s.now[resource] == nil {
		s.now[resource] = make(map[string]object)
	}
	s.now[resource][keyOf(o).String()] = o
}

// number sets the next resourceVersion. It ignores the one in the file, because versions must
// increase.
func (s *script) number(o object) {
	s.version++
	o["metadata"].(object)["resourceVersion"] = strconv.Itoa(s.version)
}

func keyOf(o object) event.Key {
	metadata, _ := o["metadata"].(object)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	return event.Key{Namespace: namespace, Name: name}
}

// merge applies a JSON merge patch (RFC 7386). It changes neither value.
func merge(old, patch any) any {
	changes, ok := patch.(object)
	if !ok {
		return patch
	}
	merged := make(object)
	if was, ok := old.(object); ok {
		maps.Copy(merged, was)
	}
	for key, value := range changes {
		if value == nil {
			delete(merged, key)
		} else {
			merged[key] = merge(merged[key], value)
		}
	}
	return merged
}

// valueOf decodes any YAML. Numbers keep their digits.
func valueOf(n config.Node) (any, error) {
	if n.IsZero() {
		return nil, nil
	}
	text, err := n.JSON()
	if err != nil {
		return nil, err
	}
	return decode(text)
}

func decode(text []byte) (value any, err error) {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func textOf(o object) string {
	text, _ := json.Marshal(o) // it was read from JSON
	return string(text)
}
