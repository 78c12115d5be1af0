package explain

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/cel"
	types "github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// Input is a delta written by a user.
type Input struct {
	Object []byte // YAML or JSON: the object after the change, for a delete its last state
	Old    []byte // the object before the change; nil: none
	Op     string // empty: updated if there is an Old, else added
	Config string // path of the configuration; empty: none
	Source string // the source of the delta; empty: every source with objects of this kind
	// Given are the other objects of the cluster, in YAML or JSON, also as lists; nil: they are not
	// known, unless Objects tells them.
	Given   [][]byte
	Objects Objects
	// Components are the kinds of handlers and sinks.
	Components compile.Components
	// Schemas is a folder of [PullSchemas]; empty: the folder that the configuration names, if any.
	Schemas string
}

// offline is a configuration without a cluster, and a delta for it.
type offline struct {
	cfg    *config.Config
	env    *cel.Env
	object rawjson.Value
	old    rawjson.Value // "": none
	op     event.Op
	names  []string // the possible sources
	known  *compile.Schemas

	objects Objects // nil: other objects are not known
	others  *others // of the delta that is explained

	whole     *offline                      // of a fragment: the configuration; nil: this is it
	scope     *config.Scope                 // of a fragment
	fragments map[*config.Fragment]*offline // see within
}

// within returns the input for the routes of a fragment, with its names, and with look-ups in its
// scope. A nil fragment means the configuration itself.
func (o *offline) within(f *config.Fragment) (*offline, error) {
	if f == nil || o.whole != nil {
		return o, nil
	}
	if known := o.fragments[f]; known != nil {
		return known, nil
	}
	of := *o
	of.whole, of.scope, of.cfg, of.others = o, f.Scope, f.Config, nil
	shapes, _, _ := o.known.Types(o.cfg, false)
	var err error
	if of.env, err = cel.NewEnv(compile.Environment(f.Config, shapes, o.known.Owners(o.cfg))); err != nil {
		return nil, compile.ProblemsOf(f.Config, nil, nil, err)
	}
	if o.fragments == nil {
		o.fragments = make(map[*config.Fragment]*offline)
	}
	o.fragments[f] = &of
	return &of, nil
}

// openOffline reads an input. The error is config.Problems if the configuration has mistakes.
func openOffline(in Input) (*offline, error) {
	o := &offline{}
	var err error
	if err := o.read(in); err != nil {
		return nil, err
	}
	o.cfg = &config.Config{}
	if in.Config != "" {
		var problems config.Problems
		o.cfg, problems = config.Load(in.Config, in.Components.Policy)
		for _, f := range o.cfg.All() {
			problems = append(problems, f.Problems...)
		}
		if len(problems) > 0 {
			return nil, problems
		}
	}
	if o.known, err = compile.SavedSchemas(cmp.Or(in.Schemas, o.cfg.Schemas)); err != nil {
		return nil, err
	}
	if in.Config == "" {
		o.cfg = o.bare()
	}
	shapes, _, _ := o.known.Types(o.cfg, false)
	if o.env, err = cel.NewEnv(compile.Environment(o.cfg, shapes, o.known.Owners(o.cfg))); err != nil {
		return nil, compile.ProblemsOf(o.cfg, nil, nil, err)
	}
	if o.names = o.sourcesOf(o.object); in.Source != "" {
		o.names = []string{in.Source}
	}
	if all := slices.Sorted(maps.Keys(o.cfg.Sources)); in.Source != "" && !slices.Contains(all, in.Source) {
		return nil, fmt.Errorf("there is no source %q%s", in.Source, config.Suggest(in.Source, all))
	} else if len(o.names) == 0 {
		return nil, fmt.Errorf("no source has objects of %s %s: choose one with -source %s",
			o.object.Get("apiVersion").Str(), o.object.Get("kind").Str(), strings.Join(all, ", or "))
	}
	if o.objects = in.Objects; len(in.Given) > 0 {
		if o.objects, err = o.given(in.Given); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// read reads the objects and the op.
func (o *offline) read(in Input) (err error) {
	if o.object, err = readObject(in.Object); err != nil {
		return fmt.Errorf("-object: %w", err)
	}
	o.op = event.Added
	if in.Old != nil {
		o.op = event.Updated
		if o.old, err = readObject(in.Old); err != nil {
			return fmt.Errorf("-old: %w", err)
		}
	}
	if in.Op == "" {
		return nil
	}
	var ok bool
	if o.op, ok = event.ParseOp(in.Op); !ok {
		var ops []string
		for _, op := range event.SourceOps() {
			ops = append(ops, op.String())
		}
		return fmt.Errorf("there is no op %q%s", in.Op, config.Suggest(in.Op, ops))
	}
	if o.op != event.Updated && in.Old != nil {
		return fmt.Errorf("-old is for updated objects, not for %s", o.op)
	}
	return nil
}

func readObject(text []byte) (rawjson.Value, error) {
	object, err := manifest.ToJSON(text)
	if err != nil {
		return "", err
	}
	if err := rawjson.Check(string(object)); err != nil {
		return "", fmt.Errorf("not JSON: %w", err)
	}
	raw := rawjson.Trim(string(object))
	if raw.Path("metadata", "name").Str() == "" {
		return "", errors.New("not a Kubernetes object: metadata.name is missing")
	}
	return raw, nil
}

// bare returns a configuration with one source. Its resource is that of the object if it is built
// in.
func (o *offline) bare() *config.Config {
	resource := strings.ToLower(o.object.Get("kind").Str()) + "s"
	group, version := groupVersion(o.object)
	o.known.Set.Each(func(g, v, name string, r types.Resource) {
		if g == group && v == version && r.Kind == o.object.Get("kind").Str() {
			resource = name
		}
	})
	full := strings.TrimPrefix(group+"/"+version+"/"+resource, "/")
	return &config.Config{Cluster: config.Cluster{Name: "default"}, Sources: map[string]*config.Source{resource: {Resource: full, ManagedFields: true, Secrets: true}}}
}

func groupVersion(object rawjson.Value) (group, version string) {
	gv, err := schema.ParseGroupVersion(object.Get("apiVersion").Str())
	if err != nil {
		return "", ""
	}
	return gv.Group, gv.Version
}

func (o *offline) sourcesOf(object rawjson.Value) []string { return SourcesOf(o.cfg, o.known, object) }

// SourcesOf returns the names of the sources with objects of the kind of this one, in alphabetical
// order. If the resource of a source is not known, it is assumed to be the plural of the kind.
func SourcesOf(cfg *config.Config, known *compile.Schemas, object rawjson.Value) (names []string) {
	group, version := groupVersion(object)
	kind := object.Get("kind").Str()
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		g, v, resource, err := config.ParseResource(cfg.Sources[name].Resource)
		if err != nil || g != group || v != version {
			continue
		}
		if r, ok := known.Set.Resource(g, v, resource); ok && r.Kind == kind || !ok && types.Plural(kind, resource) {
			names = append(names, name)
		}
	}
	return names
}

// delta returns the delta in the form of a source.
func (o *offline) delta(source string) (*event.Delta, error) {
	specs, err := informer.SpecsOf(o.cfg.Sources[source])
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", source, err)
	}
	object, err := informer.Keep(specs[0], o.cfg.Cluster.Name, string(o.object))
	if err != nil {
		return nil, fmt.Errorf("the object: %w", err)
	}
	d := &event.Delta{Source: source, Op: o.op, New: object, Seen: time.Now()}
	switch {
	case o.op == event.Deleted || o.op == event.Deselected:
		d.New, d.Old = nil, object
	case o.old != "" && o.cfg.Sources[source].Cache != config.CacheIdentity:
		if d.Old, err = informer.Keep(specs[0], o.cfg.Cluster.Name, string(o.old)); err != nil {
			return nil, fmt.Errorf("the old object: %w", err)
		}
	}
	return d, nil
}
