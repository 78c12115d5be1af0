// Package crds generates the CustomResourceDefinitions of routes and clusterroutes from the structs
// of the configuration.
package crds

import (
	"encoding/json"
	"reflect"

	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Group and Version are those of the resources.
const (
	Group   = "deltarouter.io"
	Version = "v1alpha1"
)

// definition is the part of a CustomResourceDefinition that the resources need.
type definition struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec definitionSpec `json:"spec"`
}

type definitionSpec struct {
	Group    string    `json:"group"`
	Names    namesSpec `json:"names"`
	Scope    string    `json:"scope"`
	Versions []version `json:"versions"`
}

type namesSpec struct {
	Kind       string   `json:"kind"`
	ListKind   string   `json:"listKind"`
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular"`
	ShortNames []string `json:"shortNames"`
	Categories []string `json:"categories"`
}

type version struct {
	Name         string   `json:"name"`
	Served       bool     `json:"served"`
	Storage      bool     `json:"storage"`
	Subresources any      `json:"subresources"`
	Columns      []column `json:"additionalPrinterColumns"`
	Schema       struct {
		OpenAPI schema `json:"openAPIV3Schema"`
	} `json:"schema"`
}

// column is a column of kubectl get.
type column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	JSONPath    string `json:"jsonPath"`
	Description string `json:"description,omitempty"`
	Priority    int    `json:"priority,omitempty"`
}

// Manifests returns both CustomResourceDefinitions in YAML, for kubectl apply. The result is
// deterministic.
func Manifests() ([]byte, error) {
	routes, err := manifestOf("Namespaced", namesSpec{Kind: "Route", Plural: "routes", Singular: "route", ShortNames: []string{"drt"}},
		"Route is a route of deltarouter in a namespace. It gets the deltas of the objects of its namespace only.")
	if err != nil {
		return nil, err
	}
	clusterRoutes, err := manifestOf("Cluster", namesSpec{Kind: "ClusterRoute", Plural: "clusterroutes", Singular: "clusterroute", ShortNames: []string{"cdrt"}},
		"ClusterRoute is a route of deltarouter for the objects of all namespaces, and for those without a namespace.")
	if err != nil {
		return nil, err
	}
	return append(append(routes, "---\n"...), clusterRoutes...), nil
}

func manifestOf(scope string, names namesSpec, doc string) ([]byte, error) {
	names.ListKind, names.Categories = names.Kind+"List", []string{"deltarouter"}
	d := definition{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
	d.Metadata.Name = names.Plural + "." + Group
	v := version{Name: Version, Served: true, Storage: true, Subresources: map[string]any{"status": struct{}{}}, Columns: columns()}
	v.Schema.OpenAPI = objectSchema(doc)
	d.Spec = definitionSpec{Group: Group, Names: names, Scope: scope, Versions: []version{v}}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return manifest.ToYAML(text)
}

// columns are the columns of kubectl get.
func columns() []column {
	of := func(condition, field string) string {
		return `.status.conditions[?(@.type=="` + condition + `")].` + field
	}
	return []column{
		{Name: "Accepted", Type: "string", JSONPath: of("Accepted", "status"), Description: "Whether the spec has no mistake."},
		{Name: "Ready", Type: "string", JSONPath: of("Ready", "status"), Description: "Whether the route gets deltas and delivers them."},
		{Name: "Reason", Type: "string", JSONPath: of("Ready", "reason"), Description: "Why the route is ready, or not."},
		{Name: "Degraded", Type: "string", JSONPath: of("Degraded", "status"), Description: "Whether deliveries of the route fail.", Priority: 1},
		{Name: "Message", Type: "string", JSONPath: of("Accepted", "message"), Description: "The first mistake of the spec.", Priority: 1},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	}
}

// objectSchema returns the schema of a custom resource.
func objectSchema(doc string) schema {
	spec := structSchema(reflect.TypeFor[config.Route]())
	spec.Description = "The route, with the keys of routes in the configuration file. Lists stand in brackets, and expressions are text. Variables (${NAME}) have no meaning."
	return schema{
		Type: "object", Description: doc, Required: []string{"spec"}, Rules: []Rule{nameRule()},
		Properties: map[string]schema{
			"apiVersion": {Type: "string", Description: "Version of the schema of this object."},
			"kind":       {Type: "string", Description: "Kind of this object."},
			"metadata":   {Type: "object"},
			"spec":       spec,
			"status":     statusSchema(),
		},
	}
}

// statusSchema returns the schema of the status, which the router writes.
func statusSchema() schema {
	described := func(doc string, s scalarSchema) schema {
		return schema{Type: "string", Description: doc, scalarSchema: s}
	}
	condition := schema{
		Type: "object", Required: []string{"type", "status", "lastTransitionTime", "reason", "message"},
		Properties: map[string]schema{
			"type":               described("Accepted, Ready or Degraded.", scalarSchema{MaxLength: 316}),
			"status":             described("True, False or Unknown.", scalarSchema{Enum: []string{"True", "False", "Unknown"}}),
			"observedGeneration": integer("The metadata.generation that the condition is about."),
			"lastTransitionTime": described("Time of the last change of status.", scalarSchema{Format: "date-time"}),
			"reason":             described("One word about the cause.", scalarSchema{MinLength: 1, MaxLength: 1024}),
			"message":            described("The cause and the remedy. Of a mistake, it has the line and column in the YAML of the spec.", scalarSchema{MaxLength: 32768}),
		},
	}
	deltas := schema{
		Type: "object", Description: "The deltas of the route since a time, over restarts. The router writes them at most once a minute; router status has those of now.",
		Properties: map[string]schema{
			"since":        described("Begin of the counts.", scalarSchema{Format: "date-time"}),
			"matched":      integer("Deltas that the route wanted: those of all other counts but failed, and the pending ones."),
			"delivered":    integer("Delivered deltas."),
			"heldBack":     integer("Deltas that the limit suppressed."),
			"coalesced":    integer("Deltas whose change a later one has."),
			"dropped":      integer("Deltas that the handler or onFailure dropped."),
			"failed":       integer("Failures of filters, keys, the handler and sinks, of which a delta may have several."),
			"deadLettered": integer("Deltas that became dead letters."),
			"shadowed":     integer("Deltas that a route with shadow would have delivered."),
		},
	}
	return schema{
		Type: "object", Description: "The state of the route. The router writes it.",
		Properties: map[string]schema{
			"deltas":             deltas,
			"observedGeneration": integer("The metadata.generation that the router has read last."),
			"conditions": {
				Type: "array", Items: &condition, MaxItems: 16, ListType: "map", ListMapKeys: []string{"type"},
				Description: "Accepted: the spec has no mistake. Ready: the route gets deltas and delivers them. Degraded: deliveries fail.",
			},
		},
	}
}
