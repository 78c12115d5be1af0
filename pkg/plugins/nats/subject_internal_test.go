package nats

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func about(namespace, name string) *event.Event {
	pods := &event.Resource{Cluster: "prod", Kind: "Pod"}
	o := event.Identity(pods, event.Key{Namespace: namespace, Name: name}, "u")
	e := event.New(&event.Delta{Source: "pods", Op: event.Deleted, Old: o}, "r", 0, nil)
	return &e
}

func TestSubject(t *testing.T) {
	for _, test := range []struct{ template, namespace, name, want string }{
		{"k8s.{source}.{namespace}.{name}", "default", "web-0", "k8s.pods.default.web-0"},
		{"{cluster}.{kind}.{op}.{route}.{type}", "", "n", "prod.Pod.deleted.r.io%2Edeltarouter%2Edeleted"},
		{"k8s.{namespace}.{name}", "", "node1.example.com", "k8s._.node1%2Eexample%2Ecom"},
		{"k8s.{name}", "", "_", "k8s.%5F"},
		{"k8s.{name}", "", "*", "k8s.%2A"},
		{"k8s.{name}", "", ">", "k8s.%3E"},
		{"k8s.{name}", "", "a b\t\r\n\x00", "k8s.a%20b%09%0D%0A%00"},
		{"k8s.{name}", "", "%2E", "k8s.%252E"},
		{"{name}.x", "", "$JS", "%24JS.x"},
		{"{name}", "", "é/:", "%C3%A9%2F%3A"},
		{"{name}", "", strings.Repeat("a", 253), strings.Repeat("a", 253)},
		{"{name}", "", strings.Repeat("a", 254), "=sha256=136496c2a16a22b58bbd01529b66d8510cc5a3ec61711cbaa298a52580b000d6"},
	} {
		s, err := parseSubject(test.template)
		must.Succeed(t, err)
		if got := s.of(about(test.namespace, test.name)); got != test.want {
			t.Errorf("%s of %q %q is %s, want %s", test.template, test.namespace, test.name, got, test.want)
		}
	}
	s, err := parseSubject("k8s.{namespace}.{name}.{route}")
	if got := s.of(&event.Event{Route: "r"}); err != nil || got != "k8s._._.r" {
		t.Errorf("of no delta: %s %v", got, err)
	}
}

// TestSubjectsDiffer: for any names, the stream of the template accepts the subject, and no two
// objects share one.
func TestSubjectsDiffer(t *testing.T) {
	long := rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune("=a.")), 0, 5, -1), func(s string) string { return strings.Repeat("=sha256=", 33) + s })
	text := rapid.OneOf(rapid.String(), long, rapid.StringOfN(rapid.RuneFrom([]rune("_%.*> $25EF")), 0, 5, -1))
	s, err := parseSubject("k8s.{namespace}.{name}")
	must.Succeed(t, err)
	rapid.Check(t, func(t *rapid.T) {
		a, b := event.Key{Namespace: text.Draw(t, "ns"), Name: text.Draw(t, "name")}, event.Key{Namespace: text.Draw(t, "ns"), Name: text.Draw(t, "name")}
		one, two := s.of(about(a.Namespace, a.Name)), s.of(about(b.Namespace, b.Name))
		if (a == b) != (one == two) {
			t.Fatalf("%q is %s, %q is %s", a, one, b, two)
		}
		if !server.IsValidLiteralSubject(one) || strings.Count(one, ".") != 2 || strings.ContainsFunc(one, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q is %q", a, one)
		}
	})
}

// FuzzSubject: an accepted template yields valid subjects, which the stream that is created for it
// accepts.
func FuzzSubject(f *testing.F) {
	for _, seed := range []string{"k8s.{source}.{namespace}.{name}", "a", "{name}", "a.{b}", "a..b", "$SYS.{name}", "{name", "{{name}}", "a.>", "é"} {
		f.Add(seed, "web.0")
	}
	f.Fuzz(func(t *testing.T, template, name string) {
		s, err := parseSubject(template)
		if err != nil {
			return
		}
		got := s.of(about("default", name))
		if !server.IsValidLiteralSubject(got) || !server.SubjectsCollide(got, s.all()) || strings.HasPrefix(got, "$") {
			t.Errorf("%q of %q is %q, and the stream's is %q", template, name, got, s.all())
		}
	})
}
