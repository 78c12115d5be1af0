package cel_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/test/must"
)

// bounded is a type of objects with lists, some of which have a maximum length in their schema.
func bounded() *schema.Type {
	text := &schema.Type{Kind: schema.String}
	list := func(elem *schema.Type, most int) schema.Field {
		return schema.Field{Type: &schema.Type{Kind: schema.List, Elem: elem, Max: most}}
	}
	inner := &schema.Type{Kind: schema.Object, Name: "inner", Fields: map[string]schema.Field{
		"few": list(text, 5), "some": list(text, 0), "name": {Type: text}, "many": list(text, 5000),
	}}
	return &schema.Type{Kind: schema.Object, Name: "outer", Fields: map[string]schema.Field{
		"few": list(inner, 20), "some": list(inner, 0), "others": list(inner, 0), "a__b": list(text, 20), "many": list(text, 100_000),
		"text": {Type: &schema.Type{Kind: schema.String, Max: 10_000_000}},
	}}
}

// TestEstimate: an expression that may cost too much causes a warning, one far beyond the limit is
// refused; loops over lists with a maximum length cause neither, nor do two over lists of the
// object with little work for each pair.
func TestEstimate(t *testing.T) {
	cfg := config()
	cfg.Types = map[string]*schema.Type{"pods": bounded()}
	typed, err := cel.NewEnv(cfg)
	must.Succeed(t, err)
	untyped := environment(t)
	const fine, warned, refused = "fine", "warned", "refused"
	for _, c := range []struct {
		env   *cel.Env
		usage cel.Usage
		text  string
		want  string
		says  string
	}{
		{typed, cel.Filter, `object.some.all(a, a.name == "x")`, fine, ""},
		{typed, cel.Filter, `object.some.exists(a, a.some.exists(b, b == a.name))`, fine, ""},
		{typed, cel.Filter, `object.some.exists(a, object.others.exists(b, a.name == b.name))`, fine, ""},
		{typed, cel.Filter, `object.some.exists(a, object.others.exists(b, object.some.exists(c, c.name == a.name && a.name == b.name)))`, refused, "times 1,000 elements of object.some;"},
		{typed, cel.Filter, `object.few.exists(a, object.others.exists(b, a.name == b.name))`, fine, ""},
		{typed, cel.Filter, `object.few.exists(a, object.few.exists(b, object.few.exists(c, c.name == a.name && a.name == b.name)))`, fine, ""},
		{typed, cel.Filter, `object.few.exists(a, object.a__b.exists(b, object.few.exists(c, c.name == a.name)))`, fine, ""},
		{typed, cel.Filter, `object.some.exists(a, a.many.exists(b, b == "x"))`, warned, "5,000 elements of a.many"},
		{typed, cel.Filter, `object.many.exists(a, object.many.exists(b, a == b))`, refused, "100,000 elements of object.many times 100,000"},
		{typed, cel.Filter, `object.text.matches("(a|b|c|d|e|f)+x")`, warned, "this may cost"},
		{typed, cel.Index, `object.some.map(a, a.name)`, fine, ""},
		{typed, cel.Index, `object.many.map(a, a)`, warned, "stopped at 100,000"},
		{untyped, cel.Filter, `object.a.all(a, true)`, fine, ""},
		{untyped, cel.Filter, `object.a.exists(a, a.b.exists(b, b.c == "x"))`, fine, ""},
		{untyped, cel.Filter, `object.a.exists(a, object.b.exists(b, a == b))`, fine, ""},
		{untyped, cel.Filter, `object.?a.orValue([]).exists(a, object.b.exists(b, a == b))`, fine, ""},
		{untyped, cel.Filter, `list("pods").exists(a, object.b.exists(b, a == b))`, warned, "3,000 elements of list() times 1,000 elements of object.b"},
		{untyped, cel.Filter, `object.a.exists(a, object.b.exists(b, object.c.exists(c, a == b && b == c)))`, refused, "object.c"},
		{untyped, cel.Filter, `list("pods").exists(p, p.metadata.name == object.metadata.name)`, fine, ""},
		{untyped, cel.Filter, `list("pods").exists(p, list("nodes").exists(n, n.metadata.name == p.metadata.name))`, warned, "3,000 elements of list()"},
		{untyped, cel.Filter, `lookup("byNode", "n").all(p, p.spec.containers.all(c, c.image.matches("^a/")))`, fine, ""},
		{untyped, cel.Filter, `object.metadata.annotations["a"].split(",").all(x, x in object.metadata.labels)`, fine, ""},
		{untyped, cel.Filter, `crashing && statuses.exists(a, statuses.exists(b, a == b))`, fine, ""},
		{untyped, cel.Filter, `crashing && list("pods").exists(a, statuses.exists(b, a == b))`, warned, "elements of statuses"},
		{untyped, cel.Emit, `list("nodes").map(n, n.metadata.name).filter(n, n != "a").sort().map(n, {"x": n})`, fine, ""},
		{untyped, cel.Query, `object.a.exists(a, object.b.exists(b, object.c.exists(c, a == b && b == c)))`, refused, "object.c"},
		// Loops over an optional, an element, a part of a list, and the result of a look-up.
		{untyped, cel.Emit, `object.spec.?rules.orValue([]).map(r, {"hosts": lookup("pods.byNode", r.?host.orValue("")).map(i, i.?status.ips.orValue([]).map(l, l.?ip.orValue(""))).flatten().distinct().sort()})`, warned, "1,000 elements of lookup() times 10 elements of orValue()"},
		{untyped, cel.Emit, `object.spec.?rules.orValue([]).map(r, {"hosts": lookup("pods.byNode", r.?host.orValue(""), 3).map(i, i.?status.ips.orValue([]).map(l, l.?ip.orValue(""))).flatten().size()})`, fine, ""},
		{untyped, cel.Emit, `object.spec.?rules.orValue([]).slice(0, 2).map(r, {"hosts": lookup("pods.byNode", r.?host.orValue(""), 3).map(i, i.?status.ips.orValue([]).map(l, l.?ip.orValue(""))).flatten().distinct().sort()})`, fine, ""},
		{untyped, cel.Emit, `object.spec.rules.map(r, r.host).distinct().map(h, {"host": h, "targets": lookup("pods.byNode", h, 5).map(i, i.?status.ips.orValue([])).flatten().distinct().sort()})`, warned, "may cost about 4,000,000 for large objects"},
		{untyped, cel.Filter, `object.a.slice(0, 2).exists(a, object.b.slice(1, 3).exists(b, object.c.exists(c, a == b && b == c)))`, fine, ""},
		{untyped, cel.Filter, `object.a.filter(a, a.x == 1).exists(a, a.?b.orValue([]).exists(b, b.?c.orValue([]).exists(c, c == a.x)))`, fine, ""},
		{typed, cel.Filter, `object.?few.orValue([]).exists(a, object.?few.orValue([]).exists(b, object.?few.orValue([]).exists(c, c.name == a.name && a.name == b.name)))`, fine, ""},
		{untyped, cel.Filter, `lookup("pods.name", "x").exists(a, list("nodes").exists(n, n.a == a.a))`, warned, "100 elements of lookup()"},
	} {
		p, err := c.env.Compile(c.text, c.usage, "pods")
		got, says := fine, ""
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if w := p.CostWarnings(); len(w) == 1 {
			got, says = warned, w[0].Message
			if w[0].Excessive {
				got = refused
			}
		}
		if got != c.want || !strings.Contains(says, c.says) {
			t.Errorf("%s: %s: %s\nwant %s with %q", c.text, got, says, c.want, c.says)
		}
	}
}
