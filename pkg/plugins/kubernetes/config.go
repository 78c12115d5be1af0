package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deltarouter/deltarouter/internal/outline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// sinkConfig is the configuration below `kubernetes:`.
type sinkConfig struct {
	Kubeconfig   string        `yaml:"kubeconfig,path" doc:"Kubeconfig file of the cluster to write to. Without kubeconfig and context: the cluster whose changes are routed, with the router's rights."`
	Context      string        `yaml:"context" doc:"Context of the kubeconfig. Empty: its current context."`
	Allow        []grantConfig `yaml:"allow,required" min:"1" doc:"The grants. An event with an operation that no grant allows is rejected before any of it is sent."`
	FieldManager string        `yaml:"fieldManager" default:"deltarouter" doc:"Beginning of the name as a field manager at the API server: each route is one, as deltarouter:ROUTE. The fields that former versions applied under this name alone become those of the first route that applies to the object."`
	Force        bool          `yaml:"force" doc:"apply takes fields over from other field managers. Otherwise such an event is rejected."`
	DryRun       bool          `yaml:"dryRun" doc:"The API server checks each write and stores none."`
	MaxDeletes   string        `yaml:"maxDeletes" default:"1000/10m" doc:"Maximum number of objects that a route may delete or evict, as in 10/1m. At one more the route is paused. none: no limit."`
	MaxWrites    string        `yaml:"maxWrites" default:"10000/10m" doc:"Maximum number of writes of a route, deletes included, as in 1000/1m. At one more the route is paused. none: no limit."`
	MaxPerObject string        `yaml:"maxPerObject" default:"30/1m" doc:"Maximum number of writes of a route to one object. At one more, which indicates a loop, the route is paused. none: no limit."`
	Timeout      time.Duration `yaml:"timeout" default:"10s" min:"1ms" max:"10m" doc:"Timeout of a request."`

	policy config.Policy
}

// grantConfig allows verbs on a resource, either on the objects themselves or on subresources.
type grantConfig struct {
	Resource          string   `yaml:"resource,required" doc:"[group/]version/resource, as in v1/configmaps. Other versions of the resource are granted with it."`
	Subresources      []string `yaml:"subresources" enum:"status scale" min:"1" doc:"Grants the verbs on these subresources instead of the objects themselves."`
	Namespaces        []string `yaml:"namespaces" min:"1" doc:"The namespaces of the objects, or the names of Namespace objects. Absent: all namespaces, and cluster-scoped objects."`
	NamespaceSelector string   `yaml:"namespaceSelector" doc:"Label selector of the namespaces, as in team=a,env!=prod. The router reads the labels at most 10 s before a write."`
	Verbs             []string `yaml:"verbs,required" enum:"apply create merge json delete evict event" min:"1" doc:"The allowed verbs. event: creates an Event about such an object."`
}

const example = `allow:
  - {resource: v1/configmaps, namespaces: [shop, ops], verbs: [apply, merge, delete]}
  - {resource: apps/v1/deployments, namespaceSelector: team=shop, verbs: [merge, event]}
  - {resource: apps/v1/deployments, subresources: [scale], namespaces: [shop], verbs: [merge]}
kubeconfig: ./kubeconfig     # absent: the cluster whose changes are routed
context: admin@other
fieldManager: deltarouter
force: false
dryRun: false
maxDeletes: 10/1m
maxWrites: 1000/1m
maxPerObject: 30/1m
timeout: 10s
`

// Kind returns the kind of sink `kubernetes`.
func Kind() plugins.SinkKind {
	return kind{plugins.SinkDefinition[sinkConfig]{New: newSink, Definition: plugins.Definition[sinkConfig]{
		Name:    "kubernetes",
		Doc:     "Executes the operations in the data of each event in a cluster: apply, create, merge or json patch, delete, evict, or an Event about an object. docs/SINKS.md specifies the data.",
		Example: example,
	}}}
}

type kind struct {
	plugins.SinkDefinition[sinkConfig]
}

var _ interface {
	plugins.FileReader
	plugins.Prober
	plugins.RightsRequester
	outline.Outliner
} = kind{}

// Files implements [plugins.FileReader].
func (kind) Files(node config.Node) []string {
	var c sinkConfig
	if node.Decode(&c).Err() != nil || c.Kubeconfig == "" {
		return nil
	}
	return []string{c.Kubeconfig}
}

// Validate implements [config.Validator].
func (c *sinkConfig) Validate(n config.Node) (problems config.Problems) {
	c.policy = n.Policy()
	for key, text := range map[string]string{"maxDeletes": c.MaxDeletes, "maxWrites": c.MaxWrites, "maxPerObject": c.MaxPerObject} {
		if _, err := parseRate(text); err != nil {
			problems = append(problems, n.At(key).Problemf("%v", err))
		}
	}
	if c.FieldManager == "" || len(c.FieldManager) > 128 {
		problems = append(problems, n.At("fieldManager").Problemf("must have 1 to 128 characters"))
	}
	return problems
}

// Validate implements [config.Validator].
func (g *grantConfig) Validate(n config.Node) (problems config.Problems) {
	problem := func(key, format string, args ...any) {
		problems = append(problems, n.At(key).Problemf(format, args...))
	}
	group, _, resource, err := parseResource(g.Resource)
	if g.Resource != "" && err != nil {
		problem("resource", "%v", err)
	}
	if len(g.Namespaces) > 0 && g.NamespaceSelector != "" {
		problem("namespaceSelector", "a grant has either namespaces or namespaceSelector: remove one, or write two grants")
	}
	if _, err := labels.Parse(g.NamespaceSelector); err != nil {
		problem("namespaceSelector", "is not a label selector, as in team=a,env!=prod: %v", err)
	}
	for _, namespace := range g.Namespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			problem("namespaces", "%q is not a valid namespace: leave namespaces out for all, or write namespaceSelector", namespace)
		}
	}
	for _, verb := range g.Verbs {
		switch {
		case verb == "evict" && (group != "" || resource != "pods"):
			problem("verbs", "evict is for v1/pods")
		case len(g.Subresources) > 0 && !slices.Contains([]string{"apply", "merge", "json"}, verb):
			problem("verbs", "%s is not for subresources: they take apply, merge and json", verb)
		case verb == "apply" && slices.Contains(g.Subresources, "scale"):
			problem("verbs", "apply is not for the subresource scale: it takes merge and json")
		}
	}
	return problems
}

// parseResource parses [group/]version/resource.
func parseResource(text string) (group, version, resource string, err error) {
	parts := strings.Split(text, "/")
	if last := len(parts) - 1; last == 3 || last == 2 && parts[0] == "v1" {
		return "", "", "", fmt.Errorf("names a subresource: write %s, and %s as the subresource", strings.Join(parts[:last], "/"), parts[last])
	}
	return config.ParseResource(text)
}

// rate is a maximum number per period. The zero rate is no limit.
type rate struct {
	n   int
	per time.Duration
}

func (r rate) String() string { return fmt.Sprintf("%d/%s", r.n, shortly(r.per)) }

// shortly formats a duration as 1m instead of 1m0s.
func shortly(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// rates returns the limits of deletes, of writes, and of writes to one object.
func (c *sinkConfig) rates() (rates [3]rate, err error) {
	for i, text := range []string{c.MaxDeletes, c.MaxWrites, c.MaxPerObject} {
		if rates[i], err = parseRate(text); err != nil {
			return rates, err
		}
	}
	return rates, nil
}

// parseRate parses a rate. The zero rate is no limit.
func parseRate(text string) (rate, error) {
	if text == "" || text == "none" {
		return rate{}, nil
	}
	form := errors.New("must be a whole number and a time from 1s to 24h, as in 10/1m, or none")
	count, per, ok := strings.Cut(text, "/")
	n, err := strconv.ParseUint(count, 10, 20)
	if !ok || err != nil {
		return rate{}, form
	}
	d, err := time.ParseDuration(per)
	if err != nil || d < time.Second || d > 24*time.Hour {
		return rate{}, form
	}
	return rate{int(n), d}, nil
}
