//go:build !race

package cel

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	k8sjson "k8s.io/apimachinery/pkg/util/json"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestTypedAgreement compiles and evaluates expressions about the fields of every built-in kind,
// and of a kind with further types of fields, as we do and as Kubernetes does: with its
// declarations made of the same schema, over its values of the unmarshalled object. For each leaf,
// at any depth, it is the value, its type, comparisons with equal and other values, has() and .?;
// for each list and map also its size, elements and macros. Each is evaluated for an object with
// all fields and one with none, those about scalars also for one in which each leaf is of a wrong
// type and one in which it is null. Values and kinds of errors must be equal.
//
// The two differ where an object does not match its schema, which an API server does not send:
// has() and whole lists ignore such a value here, and Kubernetes does not. They also differ in null
// at a key of a map, which is absent here, as it is without a schema.
func TestTypedAgreement(t *testing.T) {
	// Guarantee: typed-expressions
	set, err := schema.Builtin()
	must.Succeed(t, err)
	a := &typedAgreement{}
	set.Each(func(group, version, resource string, r schema.Resource) {
		a.kind(t, strings.TrimPrefix(group+"/"+version+"/"+resource, "/"), r.Type)
	})
	a.kind(t, "formats", formats())
	t.Logf("%d kinds, %d expressions, %d evaluations, %d of them errors", a.kinds, a.expressions, a.evaluations, a.errors)
	if a.kinds < 50 || a.expressions < 3000 || a.errors < 3000 {
		t.Error("too little was compared")
	}
}

type typedAgreement struct {
	kinds, expressions, evaluations, errors int
}

// maxLeaves is about how many leaves of a kind are taken, evenly from all that there are.
const maxLeaves = 8

func (a *typedAgreement) kind(t *testing.T, name string, of *schema.Type) {
	t.Helper()
	a.kinds++
	of = unroll(of)
	ours, err := NewEnv(EnvConfig{Types: map[string]*schema.Type{"s": of}})
	must.Succeed(t, err)
	theirs := kubernetesEnv(t, of)
	var leaves []leaf
	collect("object", of, 0, &leaves)
	step := max(1, len(leaves)/maxLeaves)
	if name == "formats" {
		step = 1
	}
	var objects []sampled
	for _, wrong := range []int{0, 3, 1, 2} {
		objects = append(objects, newSample(t, of, wrong))
	}
	for i := a.kinds % step; i < len(leaves); i += step {
		for _, text := range leaves[i].expressions() {
			a.expressions++
			p, err := ours.Compile(text, check.Value, "s")
			tree, issues := theirs.Compile(text)
			if err != nil || issues.Err() != nil {
				if (err == nil) != (issues.Err() == nil) {
					t.Errorf("%s: %s: %v, Kubernetes %v", name, text, err, issues.Err())
				}
				continue
			}
			program, err := theirs.Program(tree)
			must.Succeed(t, err)
			scalar := leaves[i].of.Kind != schema.List && leaves[i].of.Kind != schema.Map && !strings.HasPrefix(text, "has(") && !strings.Contains(text, ".?")
			ofMap := strings.HasSuffix(leaves[i].path, `"]`)
			for n, object := range objects {
				if n < 2 || scalar && (n == 2 || !ofMap) { // the last has null
					a.evaluate(t, name, p, program, of, object, text)
				}
			}
		}
	}
}

// unroll makes a recursive type finite, as Kubernetes does: an object inside itself has no
// description.
func unroll(of *schema.Type, around ...string) *schema.Type {
	if of == nil || of.Kind == schema.Object && slices.Contains(around, of.Name) {
		return &schema.Type{}
	}
	unrolled := *of
	switch of.Kind {
	case schema.List, schema.Map:
		unrolled.Elem = unroll(of.Elem, around...)
	case schema.Object:
		unrolled.Fields = make(map[string]schema.Field, len(of.Fields))
		for key, f := range of.Fields {
			unrolled.Fields[key] = schema.Field{Type: unroll(f.Type, append(slices.Clone(around), of.Name)...), Required: f.Required}
		}
	default:
	}
	return &unrolled
}

// sampled is an object in both forms.
type sampled struct {
	source       string
	object       *event.Object
	unstructured map[string]any
}

func newSample(t *testing.T, of *schema.Type, wrong int) (s sampled) {
	t.Helper()
	text, err := json.Marshal(sample(of, 0, wrong))
	must.Succeed(t, err)
	s.source = string(text)
	if s.object, err = event.ParseObject(&event.Resource{}, s.source); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, k8sjson.Unmarshal(text, &s.unstructured))
	return s
}

func (a *typedAgreement) evaluate(t *testing.T, name string, ours *Program, theirs cel.Program, of *schema.Type, object sampled, text string) {
	t.Helper()
	a.evaluations++
	want, _, wantErr := theirs.Eval(map[string]any{syntax.VarObject: common.UnstructuredToVal(object.unstructured, kubernetesSchema{of: of})})
	in := ours.start(Input{Delta: &event.Delta{Op: event.Added, Source: "s", New: object.object}})
	defer in.release()
	got, gotErr := in.evaluate(t.Context())
	absent := wantErr != nil && (strings.Contains(wantErr.Error(), "no such key") || strings.Contains(wantErr.Error(), "index out of bounds"))
	switch compared := (&agreement{}); {
	case (gotErr == nil) != (wantErr == nil), gotErr != nil && absent != isAbsent(gotErr):
		t.Errorf("%s: %s: %v (%v), Kubernetes %v (%v), of %s", name, text, got, gotErr, want, wantErr, object.source)
	case gotErr != nil:
		a.errors++
	default:
		if difference := compared.compare(jsonval.Unwrap(got), jsonval.Unwrap(want)); difference != "" {
			t.Errorf("%s: %s: %s, of %s", name, text, difference, object.source)
		}
	}
}

// leaf is a place in the objects of a kind.
type leaf struct {
	parent, name string // object.spec and nodeName
	path         string // object.spec.nodeName, labels["k"], containers[0]
	of           *schema.Type
}

// collect lists all that is worth a question: scalars, lists and maps.
func collect(path string, of *schema.Type, depth int, leaves *[]leaf) {
	if depth > 9 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(of.Fields)) {
		escaped, ok := apiservercel.Escape(key)
		field := of.Fields[key].Type
		if !ok || field.Kind == schema.Any {
			continue
		}
		inner := path + "." + escaped
		if field.Kind != schema.Object {
			*leaves = append(*leaves, leaf{path, escaped, inner, field})
		}
		for field.Kind == schema.List || field.Kind == schema.Map {
			if field.Kind == schema.List {
				inner += "[0]"
			} else {
				inner += `["k"]`
			}
			if field = field.Elem; field.Kind != schema.Object && field.Kind != schema.Any {
				*leaves = append(*leaves, leaf{path: inner, of: field})
			}
		}
		collect(inner, field, depth+1, leaves)
	}
}

func (l leaf) expressions() []string {
	p := l.path
	all := []string{p, "type(" + p + ")", p + " == " + p}
	if l.name != "" {
		all = append(all, "has("+p+")", l.parent+".?"+l.name+".hasValue()", l.parent+".?"+l.name)
	}
	switch l.of.Kind {
	case schema.List:
		all = append(all, "size("+p+")", p+"[0]", p+"[7]", p+".exists(x, x == "+p+"[0])", p+"[0] in "+p, p+" + "+p, p+".map(x, x)")
	case schema.Map:
		all = append(all, "size("+p+")", p+`["k"]`, p+".k", p+`["absent"]`, `"k" in `+p, p+".all(k, k == 'k')", p+".map(k, "+p+"[k])", "has("+p+".k)")
	case schema.Int:
		all = append(all, p+" == 7", p+" > 6", p+" + 1", p+" < 7.5", p+" == 7.0", "string("+p+")")
	case schema.Double:
		all = append(all, p+" == 7.0", p+" > 6.5", p+" / 2.0", p+" == 7", p+" < 8")
	case schema.String:
		all = append(all, p+` == "text"`, p+`.startsWith("t")`, p+` < "z"`, p+" == null", p+" == 1", "size("+p+")")
	case schema.Bool:
		all = append(all, p+" == true", "!"+p, p+` ? "a" : "b"`, p+" == 'true'")
	case schema.Timestamp, schema.Date:
		all = append(all, p+` == timestamp("2026-01-02T03:04:05Z")`, p+".getFullYear()", p+" - "+p, p+` == "2026-01-02T03:04:05Z"`, "string("+p+")")
	case schema.Duration:
		all = append(all, p+` == duration("90s")`, p+".getSeconds()", p+" + "+p, p+` == "90s"`)
	case schema.Bytes:
		all = append(all, p+` == b"text"`, "string("+p+")", "size("+p+")", p+` == "text"`)
	case schema.IntOrString:
		all = append(all, p+" == 7", p+` == "7"`, "type("+p+") == int", p+" == 7.5")
	case schema.Any, schema.Object:
	}
	return all
}

// sample makes an object: with everything (0), with leaves of the wrong type (1), with null for
// leaves (2), with nothing (3).
func sample(of *schema.Type, depth, wrong int) map[string]any {
	object := make(map[string]any)
	if wrong == 3 {
		return map[string]any{"metadata": map[string]any{"name": "x"}}
	}
	if depth > 9 {
		return object
	}
	for key, f := range of.Fields {
		if depth == 0 && key == "metadata" && wrong > 0 { // without a name it would be no object
			object[key] = map[string]any{"name": "x"}
			continue
		}
		object[key] = sampleValue(f.Type, depth+1, wrong)
	}
	return object
}

func sampleValue(of *schema.Type, depth, wrong int) any {
	switch of.Kind {
	case schema.Object:
		return sample(of, depth, wrong)
	case schema.List:
		return []any{sampleValue(of.Elem, depth+1, wrong)}
	case schema.Map:
		return map[string]any{"k": sampleValue(of.Elem, depth+1, wrong)}
	default:
	}
	switch wrong {
	case 1:
		if of.Kind == schema.String || of.Kind == schema.Timestamp || of.Kind == schema.Duration || of.Kind == schema.Date {
			return 7
		}
		return []any{"wrong"}
	case 2:
		return nil
	}
	return map[schema.Kind]any{
		schema.Bool: true, schema.Int: 7, schema.Double: 7, schema.String: "text", schema.Bytes: "dGV4dA==",
		schema.Timestamp: "2026-01-02T03:04:05Z", schema.Date: "2026-01-02", schema.Duration: "1m30s", schema.IntOrString: 7,
		schema.Any: map[string]any{},
	}[of.Kind]
}

// kubernetesEnv declares `object` as the API server does for the rules of custom resources.
func kubernetesEnv(t *testing.T, of *schema.Type) *cel.Env {
	t.Helper()
	declared := common.SchemaDeclType(kubernetesSchema{of: of}, true).MaybeAssignTypeName("Root")
	base, err := cel.NewEnv(cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true), ext.Strings(ext.StringsVersion(2)))
	must.Succeed(t, err)
	options, err := apiservercel.NewDeclTypeProvider(declared).EnvOptions(base.CELTypeProvider())
	must.Succeed(t, err)
	env, err := base.Extend(append(options, cel.Variable(syntax.VarObject, declared.CelType()))...)
	must.Succeed(t, err)
	return env
}

// kubernetesSchema is a type as the API server's CEL wants schemas.
type kubernetesSchema struct {
	common.Schema // the methods that are not called

	of *schema.Type
}

func (s kubernetesSchema) inner(of *schema.Type) common.Schema { return kubernetesSchema{of: of} }

func (s kubernetesSchema) Type() string {
	switch s.of.Kind {
	case schema.Bool:
		return "boolean"
	case schema.Int:
		return "integer"
	case schema.Double:
		return "number"
	case schema.String, schema.Bytes, schema.Timestamp, schema.Date, schema.Duration:
		return "string"
	case schema.List:
		return "array"
	case schema.IntOrString:
		return ""
	default:
		return "object"
	}
}

func (s kubernetesSchema) Format() string {
	return map[schema.Kind]string{
		schema.Bytes: "byte", schema.Timestamp: "date-time", schema.Date: "date", schema.Duration: "duration", schema.IntOrString: "int-or-string",
	}[s.of.Kind]
}

func (s kubernetesSchema) Items() common.Schema { return s.inner(s.of.Elem) }

func (s kubernetesSchema) Properties() map[string]common.Schema {
	if s.of.Kind != schema.Object {
		return nil
	}
	properties := make(map[string]common.Schema)
	for key, f := range s.of.Fields {
		properties[key] = s.inner(f.Type)
	}
	return properties
}

func (s kubernetesSchema) AdditionalProperties() common.SchemaOrBool {
	if s.of.Kind != schema.Map {
		return nil
	}
	return kubernetesElement{s.inner(s.of.Elem)}
}

type kubernetesElement struct{ schema common.Schema }

func (e kubernetesElement) Schema() common.Schema { return e.schema }

func (e kubernetesElement) Allows() bool { return true }

func (s kubernetesSchema) Nullable() bool { return s.of.Nullable }

func (s kubernetesSchema) IsXIntOrString() bool { return s.of.Kind == schema.IntOrString }

func (s kubernetesSchema) IsXEmbeddedResource() bool { return false }

func (s kubernetesSchema) IsXPreserveUnknownFields() bool { return false }

func (s kubernetesSchema) XListType() string { return s.of.ListType }

func (s kubernetesSchema) XListMapKeys() []string { return s.of.Keys }

func (s kubernetesSchema) WithTypeAndObjectMeta() common.Schema { return s }

func (s kubernetesSchema) MaxLength() *int64 { return nil }

func (s kubernetesSchema) MaxItems() *int64 { return nil }

func (s kubernetesSchema) MaxProperties() *int64 { return nil }

func (s kubernetesSchema) Enum() []any { return nil }

func (s kubernetesSchema) Default() any { return nil }

func (s kubernetesSchema) Required() (required []string) { return nil }

func isAbsent(err error) bool { return errors.Is(err, celerr.ErrAbsent) }
