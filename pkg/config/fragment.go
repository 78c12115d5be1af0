package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/internal/config/yamlfile"
	"github.com/deltarouter/deltarouter/internal/similar"
)

// AllNamespaces is the element of Scope.Namespaces that stands for all namespaces and for the
// objects without one.
const AllNamespaces = "*"

// Include bounds the routes of some files.
type Include struct {
	Node       Node     `yaml:",self"`
	Name       string   `yaml:"name,required" doc:"The beginning of the names of the routes: the route crash-loop of the include payments is called payments/crash-loop."`
	Files      []string `yaml:"files,required,path" min:"1" doc:"Files, folders, or patterns with wildcards in the last part of the path, as in teams/payments/*.yaml. A file has only routes and define."`
	Namespaces []string `yaml:"namespaces,required" min:"1" doc:"Namespaces whose objects the routes see, also in look-ups, and the Namespace objects of that name. *: all namespaces, and all objects without a namespace."`
	Sources    []string `yaml:"sources,required" min:"1" doc:"Sources that the routes may use, also in look-ups."`
	Sinks      []string `yaml:"sinks,required" min:"1" doc:"Sinks that the routes may deliver to."`
	Handlers   []string `yaml:"handlers" doc:"Handlers that the routes may use. Absent: none. The include has an instance of its own of each, with its own kv."`
	Partitions int      `yaml:"partitions" min:"0" max:"1024" doc:"Maximum number of partitions that the routes with workers have together. Needs fleet. Absent or 0: the routes have no workers."`
	Strict     bool     `yaml:"strict" doc:"A mistake in a file rejects the whole configuration. Otherwise it disables the routes of its file only."`
}

// Scope bounds the routes of a fragment: the names that they may use and the objects that they see.
type Scope struct {
	Prefix                   string   // the routes are called Prefix/name
	Namespaces               []string // AllNamespaces: all
	Sources, Sinks, Handlers []string
	Partitions               int  `json:"-"` // of the routes with workers together
	Strict                   bool `json:"-"` // a mistake rejects the whole configuration
	// Granted is the place of the scope, for messages: config.yaml:12.
	Granted string `json:"-"`
}

// Sees reports whether the routes see the objects of a namespace. The namespace is empty for an
// object without one. A nil scope sees everything.
func (s *Scope) Sees(namespace string) bool {
	return s == nil || slices.Contains(s.Namespaces, AllNamespaces) || namespace != "" && slices.Contains(s.Namespaces, namespace)
}

// Only returns the namespaces whose objects the routes see. all: they see everything.
func (s *Scope) Only() (namespaces []string, all bool) {
	if s.Sees("") {
		return nil, true
	}
	return s.Namespaces, false
}

// Qualified returns the name of a part that each scope has of its own: of a route, or of an
// instance of a handler.
func (s *Scope) Qualified(name string) string {
	if s == nil || name == "" {
		return name
	}
	return s.Prefix + "/" + name
}

// missing is the message about a part that is not among the granted ones.
func (s *Scope) missing(kind, name string, granted []string) string {
	text := fmt.Sprintf("%s %q is unknown or not granted", kind, name)
	if near, ok := similar.Nearest(name, granted); ok {
		return fmt.Sprintf("%s; did you mean %q?", text, near)
	}
	if len(granted) == 0 {
		return fmt.Sprintf("%s: %s grants no %ss; ask for it there", text, s.Granted, kind)
	}
	return fmt.Sprintf("%s: %s grants %s; use one of these, or ask for it there", text, s.Granted, strings.Join(granted, ", "))
}

// Scope returns the scope of the route; nil: it has none.
func (r *Route) Scope() *Scope {
	if r.Fragment == nil {
		return nil
	}
	return r.Fragment.Scope
}

// Fragment is a document with routes of others: an included file, or an object of the cluster.
type Fragment struct {
	Name  string // the file, for messages
	Data  []byte // YAML or JSON with the keys of FragmentForm
	Err   error  // the reason why Data is not used
	Scope *Scope // of an object, Load sets it
	// Object is the object of the cluster whose YAML Data is; nil: Data is an included file.
	Object *ObjectRef
	// Former is the text that was accepted before; nil: there is none. A router that runs uses it
	// if Data has mistakes. [Load] does not set it.
	Former []byte

	// Config has the routes and defines of the fragment, and the parts of the main configuration
	// that it may use. It is set by [Load]; nil: Data is no mapping.
	Config *Config
	// Problems are the mistakes of the fragment. With problems, none of its routes is used.
	Problems Problems
}

// FragmentForm has the keys of a fragment.
type FragmentForm struct {
	Version int             `yaml:"version" min:"1" max:"1" doc:"Version of this format: 1."`
	Define  map[string]Expr `yaml:"define" doc:"CEL expressions that other expressions of this file use by name."`
	Routes  []*Route        `yaml:"routes,required" min:"1" doc:"The routes. {route: NAME} under to means a route of this file."`
}

// All returns the fragments of a configuration, which may be nil.
func (c *Config) All() []*Fragment {
	if c == nil {
		return nil
	}
	return c.Fragments
}

// checkIncludes checks the grants of the includes.
func (c *Config) checkIncludes(n Node) (problems Problems) {
	seen := map[string]bool{}
	c.Include = slices.DeleteFunc(c.Include, func(i *Include) bool { return i == nil })
	for _, i := range c.Include {
		name := i.Node.At("name")
		switch {
		case i.Name == "":
		case !nameSyntax.MatchString(i.Name):
			problems = append(problems, name.Problemf("%q is not a valid name: %s", i.Name, nameRule))
		case seen[i.Name]:
			problems = append(problems, name.Problemf("include %q occurs twice: choose another name, or write one include with the files of both", i.Name))
		}
		if reason := c.CustomResources.reserved(i.Name); reason != "" {
			problems = append(problems, name.Problemf("%q %s", i.Name, reason))
		}
		seen[i.Name] = true
		problems = append(problems, checkNamespaces(i.Node.At("namespaces"), i.Namespaces)...)
		problems = append(problems, c.checkReferences(i.Node.At("sources"), i.Sources, kindSource)...)
		problems = append(problems, c.checkReferences(i.Node.At("sinks"), i.Sinks, kindSink)...)
		problems = append(problems, c.checkReferences(i.Node.At("handlers"), i.Handlers, kindHandler)...)
		if i.Partitions > 0 && c.Fleet == nil {
			problems = append(problems, i.Node.At("partitions").Problemf("needs a fleet, whose workers handle the partitions: add fleet, or remove this key"))
		}
	}
	if keys := n.Keys(); c.main == nil && n.yaml.Kind == yaml.MappingNode && !slices.Contains(keys, "routes") && !slices.Contains(keys, "include") && !slices.Contains(keys, "customResources") {
		problems = append(problems, n.Problemf("routes is missing"))
	}
	return problems
}

// checkNamespaces checks the namespaces of a scope.
func checkNamespaces(n Node, namespaces []string) (problems Problems) {
	for i, item := range n.Items() {
		if i < len(namespaces) && namespaces[i] != "" && namespaces[i] != AllNamespaces && !dnsLabel.MatchString(namespaces[i]) {
			problems = append(problems, item.Problemf("%q is not the name of a namespace: write the name, or \"*\" for all", namespaces[i]))
		}
	}
	return problems
}

// scope returns the scope that an include grants.
func (i *Include) scope() *Scope {
	p := i.Node.Problemf("")
	return &Scope{
		Prefix: i.Name, Namespaces: i.Namespaces, Sources: i.Sources, Sinks: i.Sinks, Handlers: i.Handlers, Partitions: i.Partitions, Strict: i.Strict,
		Granted: fmt.Sprintf("%s:%d", p.File, p.Line),
	}
}

// Included returns the paths of all includes. The files that they match may change.
func (c *Config) Included() (patterns []string) {
	for _, i := range c.Include {
		patterns = append(patterns, i.Files...)
	}
	return patterns
}

// addFragments reads the included files and adds them and others. It returns the problems of the
// includes and those of strict fragments.
func (c *Config) addFragments(others []*Fragment) (problems Problems) {
	for _, i := range c.Include {
		scope := i.scope()
		for k, item := range i.Node.At("files").Items() {
			if k >= len(i.Files) || i.Files[k] == "" {
				continue
			}
			names, err := files.Match(i.Files[k])
			if err != nil {
				problems = append(problems, item.Problemf("%v", err))
			}
			for _, name := range names {
				c.Fragments = append(c.Fragments, c.readFragment(name, scope))
			}
		}
	}
	c.Fragments = append(c.Fragments, others...)
	names, used := make(Names), make(usages)
	for _, f := range c.Fragments {
		if f.Object != nil {
			c.grant(f)
		}
		if f.Err == nil {
			f.Err = used.add(f)
		}
		if f.Config, f.Problems = nil, nil; f.Err != nil {
			f.Problems = Problems{{File: f.Name, Message: f.Err.Error()}}
		} else if f.Config, f.Problems = c.Fragment(f, f.Data); len(f.Problems) == 0 {
			f.Problems = names.Add(f)
		}
		switch {
		case f.Scope.Strict:
			problems = append(problems, f.Problems...)
		case len(f.Problems) > 0:
			continue
		}
		if f.Config != nil {
			c.Routes = append(c.Routes, f.Config.Routes...)
		}
	}
	return problems
}

// readFragment reads an included file. A link may not lead out of the folder that the include
// names: the author of a fragment must not read other files through its problems.
func (c *Config) readFragment(name string, scope *Scope) *Fragment {
	f := &Fragment{Name: name, Scope: scope}
	dir := filepath.Dir(name)
	if inside, err := inAny([]string{dir}, name); err != nil || !inside {
		f.Err = fmt.Errorf("is a link out of its folder, or to nothing: put the file itself into %s", dir)
		return f
	}
	if f.Err = c.Policy.check(tags.PathRead, name); f.Err == nil {
		f.Data, f.Err = files.ReadIn(dir, filepath.Base(name))
	}
	return f
}

// Fragment decodes and checks a text of a fragment: its own, or a former one. It does not modify f.
func (c *Config) Fragment(f *Fragment, data []byte) (*Config, Problems) {
	doc, root, problems := newDocument(Policy{}, func() (*yamlfile.File, *yaml.Node, *yamlfile.Mistake) {
		file, root, m := yamlfile.Parse(f.Name, data)
		if m != nil && m.Empty {
			m.Message = "is empty: it needs routes; to remove its routes, remove the file"
		}
		return file, root, m
	})
	doc.fragment = true
	if root.yaml == nil {
		return nil, problems
	}
	if f.Object != nil {
		root = newNode(doc, routesOf(root.yaml), "")
	}
	problems = append(problems, reportRenamed(root)...)
	problems = append(problems, c.reportForeign(root)...)
	var form FragmentForm
	problems = append(problems, root.Decode(&form)...)
	sub := &Config{
		Hash: c.Hash, Policy: c.Policy, Version: c.Version, Cluster: c.Cluster, State: c.State, Define: form.Define, Routes: form.Routes,
		Sources: granted(c.Sources, f.Scope.Sources), Handlers: granted(c.Handlers, f.Scope.Handlers), Sinks: granted(c.Sinks, f.Scope.Sinks),
		doc: doc, main: c, of: f.Scope,
	}
	problems = append(problems, sub.checkAll(root)...)
	for _, r := range sub.Routes {
		if r != nil {
			if r.Node.At("queue").At("bytes").IsZero() {
				r.Queue.Bytes = 16 << 20
			}
			problems = append(problems, r.checkBounds(f)...)
			r.qualify(f)
		}
	}
	sub.Routes = slices.DeleteFunc(sub.Routes, func(r *Route) bool { return r == nil })
	if problems = problems.Sorted(); len(problems) > maxProblems {
		problems = problems[:maxProblems]
	}
	return sub, problems
}

// granted returns the parts with some names.
func granted[T any](all map[string]T, names []string) map[string]T {
	some := maps.Clone(all)
	maps.DeleteFunc(some, func(name string, _ T) bool { return !slices.Contains(names, name) })
	return some
}

// reportForeign reports the keys that only the main configuration may have, and removes them.
func (c *Config) reportForeign(root Node) (problems Problems) {
	for _, e := range root.entries() {
		if !hasKey[Config](e.key) || hasKey[FragmentForm](e.key) {
			continue
		}
		key := e.value
		key.at = e.at
		problems = append(problems, key.Problemf("an included file has only routes and define: remove it, and ask for it in the configuration that includes this file"))
	}
	if root.yaml.Kind == yaml.MappingNode && len(problems) > 0 {
		y := root.yaml
		for i := len(y.Content) - 2; i >= 0; i -= 2 {
			if slices.ContainsFunc(problems, func(p Problem) bool { return p.Path == yamlfile.Key(y.Content[i]) }) {
				y.Content = slices.Delete(y.Content, i, i+2)
			}
		}
	}
	return problems
}

// checkBounds checks that a route of a fragment does no harm to the routes of others.
func (r *Route) checkBounds(f *Fragment) (problems Problems) {
	n, where := r.Node, "an included file"
	if f.Object != nil {
		where = "an object"
	}
	most := func(at Node, value, limit int, text string) {
		if value > limit {
			problems = append(problems, at.Problemf("must be at most %s in %s, not %s", text, where, at.yaml.Value))
		}
	}
	if r.Overflow == OverflowBlock && !n.At("overflow").IsZero() {
		problems = append(problems, n.At("overflow").Problemf("block slows down all routes of the source, also those of others: %s uses coalesce or dropOldest", where))
	}
	most(n.At("queue").At("memory"), r.Queue.Memory, 10_000, "10000")
	most(n.At("queue").At("bytes"), int(r.Queue.Bytes), 16<<20, "16Mi")
	most(n.At("queue").At("disk"), int(r.Queue.Disk), 1<<30, "1Gi")
	most(n.At("concurrency"), r.Concurrency, 16, "16")
	most(n.At("batch").At("size"), r.Batch.Size, 1000, "1000")
	if r.Reevaluate > 0 && r.Reevaluate < minReevaluate {
		problems = append(problems, n.At("reevaluate").Problemf("must be at least 1m in %s, not %s: it evaluates all objects", where, n.At("reevaluate").yaml.Value))
	}
	if r.Workers != nil && f.Object == nil {
		most(n.At("workers").At("pending"), r.Workers.Pending, 1000, "1000")
	}
	return append(problems, r.checkPartitions(f)...)
}

// checkPartitions checks that a route of a fragment may have workers. They read the configuration
// and the included files; only the leader knows the objects.
func (r *Route) checkPartitions(f *Fragment) (problems Problems) {
	if r.Workers == nil {
		return nil
	}
	at, granted := r.Node.At("workers"), f.Scope.Partitions
	switch {
	case f.Object != nil:
		problems = append(problems, at.Problemf("workers read files, not the objects of the cluster: remove it, or move the route into the configuration or an included file"))
	case granted == 0:
		problems = append(problems, at.Problemf("workers are not granted: %s grants no partitions; remove it, or ask for partitions there", f.Scope.Granted))
	case r.Workers.Partitions > granted:
		problems = append(problems, at.Problemf("%d partitions are not granted: %s grants %d; use fewer, or ask for more there", r.Workers.Partitions, f.Scope.Granted, granted))
	}
	return problems
}

// qualify sets the fragment of a route, and adds the prefix to its names.
func (r *Route) qualify(f *Fragment) {
	r.Fragment, r.Name, r.ID = f, f.Scope.Qualified(r.Name), f.Scope.Qualified(r.ID)
	for i, name := range r.Upstream {
		r.Upstream[i] = f.Scope.Qualified(name)
	}
	for i := range r.To {
		t := &r.To[i]
		t.Route, t.id = f.Scope.Qualified(t.Route), f.Scope.Qualified(t.id)
	}
}
