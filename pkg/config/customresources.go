package config

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/yamlfile"
)

// clusterPrefix begins the names of routes that are ClusterRoutes. No namespace has a name with an
// uppercase letter, and no include may have this name: with a common prefix, one route could get
// the backlog of another one, and the texts about its objects.
const clusterPrefix = "clusterRoutes"

// CustomResources bounds the routes that are objects of the cluster. Without a grant, the objects
// are not watched.
type CustomResources struct {
	Routes        *Grant `yaml:"routes" doc:"Grant for the objects of the kind Route. The route web of the namespace payments is called payments/web, and sees the objects of its namespace only. Absent: they are not watched."`
	ClusterRoutes *Grant `yaml:"clusterRoutes" doc:"Grant for the objects of the kind ClusterRoute. The route web is called clusterRoutes/web. Absent: they are not watched."`
}

// Grant bounds the routes of one kind of object.
type Grant struct {
	Node       Node     `yaml:",self"`
	Namespaces []string `yaml:"namespaces,required" min:"1" doc:"Namespaces whose Routes are used, or namespaces whose objects ClusterRoutes see, also in look-ups. *: all."`
	Sources    []string `yaml:"sources,required" min:"1" doc:"Sources that the routes may use, also in look-ups."`
	Sinks      []string `yaml:"sinks,required" min:"1" doc:"Sinks that the routes may deliver to."`
	Handlers   []string `yaml:"handlers" doc:"Handlers that the routes may use. Absent: none. Each namespace has an instance of its own of each, and the ClusterRoutes have another one, with its own kv."`
}

// ObjectRef names an object of the cluster.
type ObjectRef struct {
	Namespace string // of a Route; empty: it is a ClusterRoute
	Name      string
	UID       string // differs for each object of the name
}

// grants returns the grants of the configuration.
func (c *CustomResources) grants() (all []*Grant) {
	for _, g := range []*Grant{c.Routes, c.ClusterRoutes} {
		if g != nil {
			all = append(all, g)
		}
	}
	return all
}

// Granted returns the names of the sources, sinks and handlers that objects may use. Routes that
// use them may come at any time.
func (c *CustomResources) Granted() (sources, sinks, handlers []string) {
	for _, g := range c.grants() {
		sources, sinks, handlers = append(sources, g.Sources...), append(sinks, g.Sinks...), append(handlers, g.Handlers...)
	}
	return sources, sinks, handlers
}

// AllNamespaces reports whether the grant is for all namespaces.
func (g *Grant) AllNamespaces() bool { return slices.Contains(g.Namespaces, AllNamespaces) }

// checkGrants checks the grants for objects.
func (c *Config) checkGrants() (problems Problems) {
	for _, g := range c.CustomResources.grants() {
		problems = append(problems, checkNamespaces(g.Node.At("namespaces"), g.Namespaces)...)
		problems = append(problems, c.checkReferences(g.Node.At("sources"), g.Sources, kindSource)...)
		problems = append(problems, c.checkReferences(g.Node.At("sinks"), g.Sinks, kindSink)...)
		problems = append(problems, c.checkReferences(g.Node.At("handlers"), g.Handlers, kindHandler)...)
	}
	return problems
}

// grant sets the scope of an object, or the reason why it has none.
func (c *Config) grant(f *Fragment) {
	g, kind := c.CustomResources.ClusterRoutes, "clusterRoutes"
	f.Scope, f.Err = &Scope{Prefix: clusterPrefix}, nil
	if f.Object.Namespace != "" {
		g, kind = c.CustomResources.Routes, "routes"
		f.Scope.Prefix = f.Object.Namespace
	}
	switch {
	case g == nil:
		f.Err = fmt.Errorf("is not granted: the configuration of the router has no customResources.%s", kind)
		return
	case f.Object.Namespace == "":
		f.Scope.Namespaces = g.Namespaces
	case g.AllNamespaces() || slices.Contains(g.Namespaces, f.Object.Namespace):
		f.Scope.Namespaces = []string{f.Object.Namespace}
	default: // the message does not have the namespaces of others
		f.Err = fmt.Errorf("is not granted: %s does not have its namespace", g.place())
		return
	}
	f.Scope.Sources, f.Scope.Sinks, f.Scope.Handlers, f.Scope.Granted = g.Sources, g.Sinks, g.Handlers, g.place()
}

// reserved returns the reason why an include cannot have a name: routes of objects may have names
// that begin with it; empty: it can.
func (c *CustomResources) reserved(name string) string {
	g := c.Routes
	switch {
	case name == clusterPrefix:
		return "begins the names of ClusterRoutes: choose another name"
	case g != nil && slices.Contains(g.Namespaces, name):
		return fmt.Sprintf("is also a namespace whose Routes customResources grants, and these are called %s/… too: choose another name", name)
	case g != nil && g.AllNamespaces() && dnsLabel.MatchString(name):
		return "may be a namespace, and customResources grants the Routes of all: choose a name that no namespace can have, with an uppercase letter or _"
	}
	return ""
}

// place returns the position of the grant, for messages.
func (g *Grant) place() string {
	p := g.Node.Problemf("")
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// The spec of an object is a route. Its problems have the path below spec.
const (
	specKey    = "spec"
	routesPath = "routes[0]"
)

// routesOf returns the YAML of an object as a mapping with the key routes, as in an included file.
// The name of the route is that of the object.
func routesOf(root *yaml.Node) *yaml.Node {
	value := func(of *yaml.Node, key string) *yaml.Node {
		for i := 0; of != nil && i+1 < len(of.Content); i += 2 {
			if yamlfile.Key(of.Content[i]) == key {
				return of.Content[i+1]
			}
		}
		return nil
	}
	spec := value(root, specKey)
	if spec == nil || spec.Kind != yaml.MappingNode {
		spec = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.Line, Column: root.Column}
	}
	key := func(name string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: spec.Line, Column: spec.Column}
	}
	at := func(kind yaml.Kind, tag string, content ...*yaml.Node) *yaml.Node {
		return &yaml.Node{Kind: kind, Tag: tag, Line: spec.Line, Column: spec.Column, Content: content}
	}
	content := slices.Clone(spec.Content)
	if name := value(value(root, "metadata"), "name"); name != nil {
		content = append(content, key("name"), name)
	}
	route := at(yaml.MappingNode, "!!map", content...)
	return at(yaml.MappingNode, "!!map", key("routes"), at(yaml.SequenceNode, "!!seq", route))
}

// Located gives problems of the fragment the paths of its text: of an object, below spec.
func (f *Fragment) Located(problems Problems) Problems {
	if f.Object == nil {
		return problems
	}
	problems = slices.Clone(problems)
	for i := range problems {
		if rest, ok := strings.CutPrefix(problems[i].Path, routesPath); ok {
			problems[i].Path = specKey + rest
		}
	}
	return problems
}

// Key identifies a fragment when its content changes. An object has another key than a deleted one
// of the same name, whose former text must not run in its place.
func (f *Fragment) Key() string {
	key := f.Scope.Prefix + "\x00" + f.Name
	if f.Object != nil {
		key += "\x00" + f.Object.UID
	}
	return key
}
