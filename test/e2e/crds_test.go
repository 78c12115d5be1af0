package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// specs is the folder of specs that the schema of the resources accepts or rejects.
const specs = "../../internal/crds/testdata/"

var (
	routeResource        = schema.GroupVersionResource{Group: "deltarouter.io", Version: "v1alpha1", Resource: "routes"}
	clusterRouteResource = schema.GroupVersionResource{Group: "deltarouter.io", Version: "v1alpha1", Resource: "clusterroutes"}
)

// rejected is a spec that the API server rejects.
type rejected struct {
	Path, Message string
	Spec          map[string]any
}

// definedRoutes returns a sandbox that serves the resources as router crds prints them, and the
// clients for routes of a namespace and for clusterroutes.
func definedRoutes(t *testing.T) (s *sandboxtest.Sandbox, routes, clusterRoutes dynamic.ResourceInterface) {
	t.Helper()
	s = sandboxtest.Start(t)
	printed, err := routertest.Command("crds").Output()
	must.Succeed(t, err)
	s.Apply(t, "", string(printed))
	return s, s.Dynamic().Resource(routeResource).Namespace(s.Namespace(t)), s.Dynamic().Resource(clusterRouteResource)
}

// create tries to create an object with a spec, without storing it.
func create(t *testing.T, client dynamic.ResourceInterface, kind, name string, spec map[string]any) error {
	t.Helper()
	strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	object := map[string]any{"apiVersion": "deltarouter.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
	text, err := json.Marshal(object)
	must.Succeed(t, err)
	u := &unstructured.Unstructured{}
	must.Succeed(t, u.UnmarshalJSON(text))
	_, err = client.Create(t.Context(), u, strict)
	return err
}

func readSpecs(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(specs + file)
	must.Succeed(t, err)
	must.Succeed(t, yaml.Unmarshal(text, into))
}

// TestRouteResources shows that the API server accepts the definitions without a warning of its
// schema checks, accepts valid routes, and rejects those with a mistake for the reason that the
// rule has.
func TestRouteResources(t *testing.T) {
	t.Parallel()
	s, routes, clusterRoutes := definedRoutes(t)
	for _, name := range []string{"routes", "clusterroutes"} {
		definitionIsSound(t, s, name+".deltarouter.io")
	}
	var valid []map[string]any
	readSpecs(t, "valid.yaml", &valid)
	for i, spec := range valid {
		must.Succeed(t, create(t, routes, "Route", fmt.Sprint("valid-", i), spec))
		must.Succeed(t, create(t, clusterRoutes, "ClusterRoute", fmt.Sprint("valid-", i), spec))
	}
	for _, file := range []string{"rules.yaml", "schema.yaml"} {
		var all []rejected
		readSpecs(t, file, &all)
		for _, r := range all {
			err := create(t, routes, "Route", "rejected", r.Spec)
			// A rule about a key of a mapping names the mapping.
			field := "spec." + strings.TrimSuffix(r.Path, ".by")
			if err == nil || !strings.Contains(err.Error(), r.Message) || r.Path != "" && !strings.Contains(err.Error(), field) {
				t.Errorf("%s %v: got %v", r.Message, r.Spec, err)
			}
		}
	}
	for _, name := range []string{"1st", "a.b", strings.Repeat("a", 64)} {
		if err := create(t, routes, "Route", name, valid[0]); err == nil || !strings.Contains(err.Error(), "the name of a route begins with") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// definitionIsSound checks that a definition is structural and that its names are free.
func definitionIsSound(t *testing.T, s *sandboxtest.Sandbox, name string) {
	t.Helper()
	of := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	definition, err := s.Dynamic().Resource(of).Get(t.Context(), name, metav1.GetOptions{})
	must.Succeed(t, err)
	conditions, _, err := unstructured.NestedSlice(definition.Object, "status", "conditions")
	must.Succeed(t, err)
	wanted := map[string]string{"NonStructuralSchema": "False", "NamesAccepted": "True", "Established": "True"}
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if want := wanted[fmt.Sprint(condition["type"])]; want != "" && want != condition["status"] {
			t.Errorf("%s: %v", name, condition)
		}
	}
}
