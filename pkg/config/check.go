package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/internal/similar"
)

// Node.Decode checks the rules below in the part that it decodes. Only rules about several parts
// are checked from the Config.

const nameRule = "a name begins with a letter and has only letters, digits, - and _, at most 63"

var (
	// nameSyntax restricts names to characters that are valid in metrics, paths and "source.index"
	// in CEL.
	nameSyntax    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)
	clusterSyntax = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)
	celIdentifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	dnsLabel      = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	dnsDomain     = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// unmarshal decodes a mapping with exactly one key, the kind.
func (c *Component) unmarshal(n Node) Problems {
	c.Node = n
	keys := n.Keys()
	switch {
	case len(keys) == 1:
		c.Kind = keys[0]
		c.Config = n.At(c.Kind)
		return nil
	case len(keys) > 1:
		return Problems{n.Problemf("must have one kind, but has %s: give each a name of its own", strings.Join(keys, ", "))}
	case !n.IsZero() && len(n.Items()) == 1:
		return Problems{n.Problemf("must be a kind with its configuration: write {%s: {}}", n.Items()[0].yaml.Value)}
	}
	return Problems{n.Problemf("must be a kind with its configuration, as in {stdout: {}}, not %s", n.describe())}
}

// checkAll checks the rules about several parts. n is the whole document.
func (c *Config) checkAll(n Node) Problems {
	var problems Problems
	for _, part := range []string{"sources", "handlers", "sinks"} {
		problems = append(problems, checkNames(n.At(part), nil)...)
	}
	problems = append(problems, checkDefines(n.At("define"))...)
	problems = append(problems, c.checkIncludes(n)...)
	problems = append(problems, c.checkGrants()...)
	seen, ids := map[string]int{}, map[string]int{}
	items := n.At("routes").Items()
	for i, r := range c.Routes {
		if r == nil || i >= len(items) {
			continue
		}
		problems = append(problems, c.checkRoute(r)...)
		name := items[i].At("name")
		if first, ok := seen[r.Name]; ok {
			problems = append(problems, name.Problemf("route %q occurs twice, first in %s: choose another name", r.Name, n.doc.file.Ref(first)))
		} else if r.Name != "" {
			seen[r.Name] = name.at.Line
		}
		id := items[i].At("id")
		if id.IsZero() {
			id = name
		}
		if first, ok := ids[r.ID]; !ok {
			ids[r.ID] = name.at.Line
		} else if r.ID != "" && first != seen[r.Name] { // otherwise the duplicate name is reported
			problems = append(problems, id.Problemf("the route in %s has the id %q: an id is the name, unless it is set; set another one", n.doc.file.Ref(first), r.ID))
		}
	}
	problems = append(problems, c.linkRoutes()...)
	c.defaultHistory()
	problems = append(problems, c.checkHistory()...)
	problems = append(problems, c.checkShadow()...)
	return append(problems, c.checkFleet()...)
}

// checkNames checks the names of components, sources or clusters, which are the keys of a mapping.
func checkNames(n Node, reserved []string) (problems Problems) {
	for _, e := range n.entries() {
		key := e.value
		key.at = e.at
		if !nameSyntax.MatchString(e.key) {
			problems = append(problems, key.Problemf("%q is not a valid name: %s", e.key, nameRule))
		} else if slices.Contains(reserved, e.key) {
			problems = append(problems, key.Problemf("%s is built in: choose another name", e.key))
		}
	}
	return problems
}

// checkDefines checks that the names are valid in CEL.
func checkDefines(n Node) (problems Problems) {
	builtIn := []string{"object", "oldObject", "op", "source", "cluster", "now", "since", "late", "repeat", "suppressed", "objects", "event", "events"}
	reserved := []string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
		"package", "namespace", "return", "var", "void", "while",
	}
	for _, e := range n.entries() {
		key := e.value
		key.at = e.at
		switch {
		case !celIdentifier.MatchString(e.key):
			problems = append(problems, key.Problemf("%q is not a valid name in CEL: use letters, digits and _, and no digit first", e.key))
		case slices.Contains(builtIn, e.key), slices.Contains(reserved, e.key):
			problems = append(problems, key.Problemf("%s has a meaning in CEL already: choose another name", e.key))
		}
	}
	return problems
}

// checkRoute checks that all references of a route exist.
func (c *Config) checkRoute(r *Route) Problems {
	problems := c.checkReferences(r.Node.At("from"), r.From, kindSource)
	if r.Handler != "" {
		problems = append(problems, c.checkReferences(r.Node.At("handler"), []string{r.Handler}, kindHandler)...)
	}
	for _, e := range r.Node.At("watches").entries() {
		if c.Sources[e.key] == nil {
			key := e.value
			key.at = e.at
			problems = append(problems, key.Problemf("%s", c.missing(kindSource, e.key)))
		}
	}
	if disk := r.Node.At("queue").At("disk"); c.State.Dir == "" && r.Queue.Disk > 0 && !disk.IsZero() {
		problems = append(problems, disk.Problemf("needs a state folder: set state.dir, or remove this key"))
	}
	return append(problems, c.checkRoom(r)...)
}

// checkRoom checks that the queue can hold a full batch. A batch larger than the queue would never
// fill: each new delta would push out the oldest one, although the sinks work.
func (c *Config) checkRoom(r *Route) Problems {
	spills := c.State.Dir != "" && r.Queue.Disk > 0
	if r.Overflow != OverflowDropOldest || spills || r.Batch.Wait == 0 || r.Batch.Size == 1 || r.Batch.Size < r.Queue.Memory {
		return nil
	}
	at, most := r.Node.At("batch").At("size"), max(1, r.Queue.Memory/2)
	if at.IsZero() {
		at = r.Node.At("queue").At("memory")
		return Problems{at.Problemf("a batch waits for batch.size deltas, %d by default, and with overflow: dropOldest the queue loses them before there are so many: "+
			"set batch: {size: %d}, or raise it above %d", r.Batch.Size, most, r.Batch.Size)}
	}
	return Problems{at.Problemf("a batch waits for that many deltas, and with overflow: dropOldest the queue loses them before: queue.memory is %d; set size: %d, "+
		"or raise queue.memory above %d", r.Queue.Memory, most, r.Batch.Size)}
}

// The parts of a configuration that routes name.
const (
	kindSource  = "source"
	kindHandler = "handler"
	kindSink    = "sink"
)

// names returns the names of the parts of a kind.
func (c *Config) names(kind string) []string {
	switch kind {
	case kindSource:
		return sortedKeys(c.Sources)
	case kindHandler:
		return sortedKeys(c.Handlers)
	}
	return sortedKeys(c.Sinks)
}

// has reports whether there is a part of a kind.
func (c *Config) has(kind, name string) bool {
	switch kind {
	case kindSource:
		return c.Sources[name] != nil
	case kindHandler:
		return c.Handlers[name] != nil
	}
	return c.Sinks[name] != nil
}

// checkReferences checks that the named parts exist.
func (c *Config) checkReferences(n Node, names []string, kind string) (problems Problems) {
	for i, item := range n.Items() {
		if i < len(names) && names[i] != "" && !c.has(kind, names[i]) {
			problems = append(problems, item.Problemf("%s", c.missing(kind, names[i])))
		}
	}
	return problems
}

// missing is the message about a part that does not exist, or that a fragment may not use. A
// fragment gets one text for both: its author must not learn the parts of others.
func (c *Config) missing(kind, name string) string {
	known := c.names(kind)
	if c.main == nil {
		return fmt.Sprintf("there is no %s %q%s", kind, name, similar.Suggest(name, known))
	}
	return c.of.missing(kind, name, known)
}

// MissingSource returns the message about a source that does not exist, or that a fragment, whose
// configuration c is, may not use.
func (c *Config) MissingSource(name string) string { return c.missing(kindSource, name) }

// checkOnce checks that a list has no duplicates.
func checkOnce(n Node, values []string) (problems Problems) {
	for i, item := range n.Items() {
		if i < len(values) && slices.Contains(values[:i], values[i]) {
			problems = append(problems, item.Problemf("%q occurs twice: remove one", values[i]))
		}
	}
	return problems
}

// Validate checks the rules that tags cannot express.
func (c *Cluster) Validate(n Node) (problems Problems) {
	if !clusterSyntax.MatchString(c.Name) {
		problems = append(problems, n.At("name").Problemf("%q is not a valid name: use letters, digits, -, _ and ., at most 253", c.Name))
	}
	if c.Burst > 0 && c.QPS == 0 {
		problems = append(problems, n.At("burst").Problemf("has no effect without qps: set qps too, or remove it"))
	}
	return problems
}

// Validate checks the addresses, and that no request that needs TLS or a right is served without.
func (l *Listen) Validate(n Node) (problems Problems) {
	if _, ok := splitAddress(l.Probes); !ok && l.Probes != "" {
		problems = append(problems, n.At("probes").Problemf(`must be host:port, as in ":8081" or "127.0.0.1:8081", not %q`, l.Probes))
	}
	if l.API == "" {
		for _, key := range []string{"tls", "access"} {
			if at := n.At(key); !at.IsZero() {
				problems = append(problems, at.Problemf("has no effect without listen.api: set it too, or remove this"))
			}
		}
		return problems
	}
	problems = append(problems, l.checkTLS(n.At("tls"))...)
	return append(problems, l.checkAPI(n.At("api"), !n.At("tls").IsZero())...)
}

// Equal reports whether two configurations are the same.
func (l *Listen) Equal(other *Listen) bool {
	return l.Probes == other.Probes && l.API == other.API && l.Access == other.Access &&
		l.TLS.Cert.Equal(other.TLS.Cert) && l.TLS.Key.Equal(other.TLS.Key) && l.TLS.ClientCA.Equal(other.TLS.ClientCA)
}

// checkAPI checks the address of the API.
func (l *Listen) checkAPI(at Node, secure bool) Problems {
	if path, ok := strings.CutPrefix(l.API, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return Problems{at.Problemf(`must be an absolute path, as in "unix:/run/router/api.sock", not %q`, l.API)}
		}
		if secure {
			return Problems{at.Problemf("is a socket, which has no TLS: remove listen.tls, or use host:port")}
		}
		policy := at.Policy()
		if err := policy.check(tags.PathWritten, path); err != nil {
			return Problems{at.Problemf("%v", err)}
		}
		return nil
	}
	host, ok := splitAddress(l.API)
	switch {
	case !ok:
		return Problems{at.Problemf(`must be host:port or unix:/path, as in "127.0.0.1:8484", not %q`, l.API)}
	case host == "localhost" || net.ParseIP(host).IsLoopback():
		return nil
	case l.Access == "":
		return Problems{at.Problemf(
			`must be a loopback address, as in "127.0.0.1:8484", or unix:/path, not %q: every client may use it; set listen.access and listen.tls to listen there`, l.API)}
	case !secure:
		return Problems{at.Problemf(
			`must be a loopback address, as in "127.0.0.1:8484", or unix:/path, not %q: others could read the tokens of its clients; set listen.tls to listen there`, l.API)}
	}
	return nil
}

func splitAddress(address string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return host, err == nil
}

// checkTLS does not read files, because they can change before they are used.
func (l *Listen) checkTLS(n Node) (problems Problems) {
	if n.IsZero() {
		return nil
	}
	if l.TLS.Cert.IsZero() || l.TLS.Key.IsZero() {
		problems = append(problems, n.Problemf("needs both cert and key"))
	}
	if l.Access == "" && !l.TLS.ClientCA.IsZero() {
		problems = append(problems, n.At("clientCA").Problemf("has no effect without access: set listen.access: kubernetes, or remove it"))
	}
	for key, value := range map[string]Secret{"cert": l.TLS.Cert, "key": l.TLS.Key, "clientCA": l.TLS.ClientCA} {
		at := n.At(key)
		if value.IsZero() || len(at.Keys()) > 0 { // it is in a file or a variable
			continue
		}
		if text, err := value.Value(); err == nil && !strings.Contains(text, "-----BEGIN ") {
			problems = append(problems, at.Problemf("is no PEM: write {file: path} to read it from a file"))
		}
	}
	return problems
}

// Validate checks the rules that tags cannot express.
func (s *Source) Validate(n Node) Problems {
	var problems Problems
	if _, _, _, err := ParseResource(s.Resource); err != nil && s.Resource != "" {
		problems = append(problems, n.At("resource").Problemf("%v", err))
	}
	if s.Secrets && s.Resource != "" && s.Resource != "v1/secrets" {
		problems = append(problems, n.At("secrets").Problemf("is for v1/secrets only, not for %s: remove it", s.Resource))
	}
	if _, err := labels.Parse(s.LabelSelector); err != nil {
		problems = append(problems, n.At("labelSelector").Problemf("is not a label selector, as in app=web,tier in (front, back),!canary: %v", err))
	}
	if _, err := fields.ParseSelector(s.FieldSelector); err != nil {
		problems = append(problems, n.At("fieldSelector").Problemf("is not a field selector, as in spec.nodeName=n1,status.phase!=Failed: %v", err))
	}
	problems = append(problems, s.checkNamespaceSelector(n.At("namespaceSelector"))...)
	for i, item := range n.At("namespaces").Items() {
		if i < len(s.Namespaces) && len(validation.IsDNS1123Label(s.Namespaces[i])) > 0 {
			problems = append(problems, item.Problemf("%q is not a valid namespace: %s", s.Namespaces[i], remedyForNamespace(s.Namespaces[i])))
		}
	}
	problems = append(problems, checkOnce(n.At("namespaces"), s.Namespaces)...)
	problems = append(problems, s.checkExcludeFields(n.At("excludeFields"))...)
	for _, e := range n.At("indexes").entries() {
		if e.value.describe() == "a list" && len(e.value.Items()) == 0 {
			problems = append(problems, e.value.Problemf("is empty: write an expression, or remove the key"))
		}
	}
	return append(problems, checkNames(n.At("indexes"), []string{"name", "namespace", "owner"})...)
}

// remedyForNamespace returns the remedy for a text that is not the name of a namespace.
func remedyForNamespace(text string) string {
	switch name, not := strings.CutPrefix(text, "!"); {
	case not:
		return fmt.Sprintf("a source has no exceptions by name; write namespaceSelector: kubernetes.io/metadata.name!=%s in place of namespaces, "+
			"which needs the right to watch namespaces", name)
	case strings.ContainsAny(text, "*?["):
		return "a source has no patterns; list the names, or write a namespaceSelector with labels of the namespaces; without namespaces it watches all"
	}
	return "write one, or remove namespaces to watch all"
}

// checkNamespaceSelector rejects an invalid selector, and one beside namespaces.
func (s *Source) checkNamespaceSelector(n Node) (problems Problems) {
	selector, err := labels.Parse(s.NamespaceSelector)
	switch {
	case s.NamespaceSelector == "":
	case err != nil:
		problems = append(problems, n.Problemf("is not a label selector, as in team=payments,env!=prod: %v", err))
	case selector.Empty():
		problems = append(problems, n.Problemf("selects every namespace: remove it, or write a selector, as in team=payments"))
	case len(s.Namespaces) > 0:
		problems = append(problems, n.Problemf("a source has either namespaces or namespaceSelector: remove one, or write two sources"))
	}
	return problems
}

// checkExcludeFields rejects invalid paths, and fields that identify an object.
func (s *Source) checkExcludeFields(n Node) (problems Problems) {
	kept := []string{
		"apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion",
	}
	for i, item := range n.Items() {
		if i >= len(s.ExcludeFields) {
			break
		}
		path := s.ExcludeFields[i]
		switch {
		case slices.Contains(kept, path):
			problems = append(problems, item.Problemf("%s identifies the object and cannot be excluded: remove it", path))
		case slices.Contains(strings.Split(path, "."), ""), strings.ContainsAny(path, " \t\n"):
			problems = append(problems, item.Problemf("%q is not a path: write the keys with dots between them, as in status.conditions", path))
		}
	}
	return problems
}

// ParseResource splits [group/]version/resource. The error has the cause and the remedy.
func ParseResource(s string) (group, version, resource string, err error) {
	wrong := func(text string) (string, string, string, error) {
		return "", "", "", errors.New(text + propose(s))
	}
	const form = "must be [group/]version/resource, as in v1/pods or apps/v1/deployments"
	parts := strings.Split(s, "/")
	last := parts[len(parts)-1]
	switch {
	case len(parts) < 2 || len(parts) > 3:
		return wrong(form)
	case len(parts) == 3 && parts[0] == "v1":
		return "", "", "", errors.New("a subresource cannot be watched: write " + parts[0] + "/" + parts[1])
	case last != strings.ToLower(last):
		return wrong("a resource is in lower case and in the plural, as in v1/pods")
	case len(parts) == 2 && parts[0] != "v1":
		return wrong("without a group the version is v1: write the group too, as in apps/v1/deployments")
	case len(parts) == 3 && !dnsDomain.MatchString(parts[0]):
		return wrong(form)
	case len(parts) == 3:
		group = parts[0]
	}
	version = parts[len(parts)-2]
	if !dnsLabel.MatchString(version) || !dnsLabel.MatchString(last) {
		return wrong(form)
	}
	return group, version, last, nil
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
