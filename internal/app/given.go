package app

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
	types "github.com/deltarouter/deltarouter/pkg/schema"
)

// Given is a delta that somebody has written down.
type Given struct {
	Object []byte // YAML or JSON: the state after, for a delete the last one
	Old    []byte // the state before; nil: there is none
	Op     string // empty: updated if there is an Old, else added
	Config string // path of the configuration; empty: none
	Source string // the source that it comes from; empty: every one that has such objects
	// Components are the kinds that the configuration may name.
	Components Components
	// Schemas is the folder of [PullSchemas]; empty: the one that the configuration names, if any.
	Schemas string
}

// offline is a configuration that is asked without a cluster.
type offline struct {
	cfg    *config.Config
	env    *expr.Env
	object rawjson.Value
	old    rawjson.Value // "": there is none
	op     event.Op
	names  []string // of the sources that are meant
	known  *schemas
}

// openOffline reads what is given. The error is config.Problems if something is wrong with the configuration.
func openOffline(given Given) (*offline, error) {
	o := &offline{}
	var err error
	if err := o.read(given); err != nil {
		return nil, err
	}
	o.cfg = &config.Config{}
	if given.Config != "" {
		var problems config.Problems
		if o.cfg, problems = config.Load(given.Config); len(problems) > 0 {
			return nil, problems
		}
		if o.cfg, _, problems = feed(o.cfg, given.Components.Sinks); len(problems) > 0 {
			return nil, problems
		}
	}
	if o.known, err = savedSchemas(cmp.Or(given.Schemas, o.cfg.Schemas)); err != nil {
		return nil, err
	}
	if given.Config == "" {
		o.cfg = o.bare()
	}
	shapes, _ := o.known.types(o.cfg)
	if o.env, err = expr.NewEnv(environment(o.cfg, shapes, o.known.owners(o.cfg))); err != nil {
		return nil, problemsOf(o.cfg, nil, nil, err)
	}
	if o.names = o.sources(); given.Source != "" {
		o.names = []string{given.Source}
	}
	if all := slices.Sorted(maps.Keys(o.cfg.Sources)); given.Source != "" && !slices.Contains(all, given.Source) {
		return nil, fmt.Errorf("there is no source %q%s", given.Source, config.Suggest(given.Source, all))
	} else if len(o.names) == 0 {
		return nil, fmt.Errorf("no source has objects of %s %s: say which it comes from with -source %s",
			o.object.Get("apiVersion").Str(), o.object.Get("kind").Str(), strings.Join(all, ", or "))
	}
	return o, nil
}

// read reads the objects and the op.
func (o *offline) read(given Given) (err error) {
	if o.object, err = readObject(given.Object); err != nil {
		return fmt.Errorf("-object: %w", err)
	}
	o.op = event.Added
	if given.Old != nil {
		o.op = event.Updated
		if o.old, err = readObject(given.Old); err != nil {
			return fmt.Errorf("-old: %w", err)
		}
	}
	if given.Op == "" {
		return nil
	}
	var ok bool
	if o.op, ok = event.ParseOp(given.Op); !ok {
		var ops []string
		for _, op := range event.SourceOps() {
			ops = append(ops, op.String())
		}
		return fmt.Errorf("there is no op %q%s", given.Op, config.Suggest(given.Op, ops))
	}
	if o.op != event.Updated && given.Old != nil {
		return fmt.Errorf("an old object is there when one is updated, not %s", o.op)
	}
	return nil
}

func readObject(text []byte) (rawjson.Value, error) {
	object, err := config.ObjectJSON(text)
	if err != nil {
		return "", err
	}
	if err := rawjson.Check(string(object)); err != nil {
		return "", fmt.Errorf("not JSON: %w", err)
	}
	raw := rawjson.Trim(string(object))
	if raw.Path("metadata", "name").Str() == "" {
		return "", errors.New("no object of Kubernetes: it has no metadata.name")
	}
	return raw, nil
}

// bare is a configuration with one source, of the object's resource if it is built in.
func (o *offline) bare() *config.Config {
	resource := strings.ToLower(o.object.Get("kind").Str()) + "s"
	group, version := o.groupVersion()
	o.known.set.Each(func(g, v, name string, r types.Resource) {
		if g == group && v == version && r.Kind == o.object.Get("kind").Str() {
			resource = name
		}
	})
	full := strings.TrimPrefix(group+"/"+version+"/"+resource, "/")
	return &config.Config{Cluster: config.Cluster{Name: "default"}, Sources: map[string]*config.Source{resource: {Resource: full, ManagedFields: true, Secrets: true}}}
}

func (o *offline) groupVersion() (group, version string) {
	gv, err := schema.ParseGroupVersion(o.object.Get("apiVersion").Str())
	if err != nil {
		return "", ""
	}
	return gv.Group, gv.Version
}

// sources returns those that have objects of this kind. Where the resource is not built in, its name is taken for the kind's plural.
func (o *offline) sources() (names []string) {
	group, version := o.groupVersion()
	kind := o.object.Get("kind").Str()
	for _, name := range slices.Sorted(maps.Keys(o.cfg.Sources)) {
		g, v, resource, err := config.ParseResource(o.cfg.Sources[name].Resource)
		if err != nil || g != group || v != version {
			continue
		}
		if known, ok := o.known.set.Resource(g, v, resource); ok && known.Kind == kind || !ok && types.Plural(kind, resource) {
			names = append(names, name)
		}
	}
	return names
}

// delta makes the delta that a source would give.
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
