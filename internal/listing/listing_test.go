package listing

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestPrinter(t *testing.T) {
	born := time.Now().Add(-75 * time.Hour).Format(time.RFC3339)
	pods := []json.RawMessage{
		json.RawMessage(fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"a","namespace":"ns","uid":"u1","resourceVersion":"1","creationTimestamp":%q,`+
			`"labels":{"b":"2","a":"1"},"ownerReferences":[{"kind":"Job","name":"j"},{"kind":"ReplicaSet","name":"rs","controller":true}]},"spec":{"replicas":30000000}}`, born)),
		json.RawMessage(`{"kind":"Node","metadata":{"name":"n\u001b[2J\nx"}}`),
	}
	for _, c := range []struct {
		format string
		one    bool
		n      int
		want   string
	}{
		{"table", false, 2, "NAMESPACE  NAME           AGE   VERSION\nns         a              3d3h  1\n-          n\\u001b[2J\\nx  -     -\n"},
		{"wide", false, 1, "NAMESPACE  NAME  AGE   VERSION  UID  CONTROLLER     LABELS\nns         a     3d3h  1        u1   ReplicaSet/rs  a=1,b=2\n"},
		{"table", false, 0, ""},
		{"name", false, 2, "ns/a\nn\\u001b[2J\\nx\n"},
		{"json", false, 0, `{"apiVersion": "v1", "kind": "List", "items": [], "metadata": {"resourceVersion": "7"}}` + "\n"},
		{"json", false, 2, fmt.Sprintf(`{"apiVersion": "v1", "kind": "List", "items": [`+"\n%s,\n%s\n"+`], "metadata": {"resourceVersion": "7"}}`+"\n", pods[0], pods[1])},
		{"yaml", true, 1, "kind: Pod\n"},
		{"yaml", false, 2, "\n---\nkind: Node\n"},
		{"json", true, 1, "{\n  \"kind\": \"Pod\",\n"},
		{"jsonpath={.metadata.name}", true, 1, "a"},
		{"jsonpath=.spec.replicas", true, 1, "30000000"},
		{"jsonpath={.spec.nothing}", true, 1, ""},
		{"jsonpath={.items[*].metadata.labels.a}", false, 2, "1"},
		{`jsonpath={range .items[*]}{.kind}{"\n"}{end}`, false, 2, "Pod\nNode\n"},
		{"jsonpath={.metadata.resourceVersion}", false, 0, "7"},
	} {
		t.Run(fmt.Sprint(c.format, c.one, c.n), func(t *testing.T) {
			var out strings.Builder
			p, err := New(&out, c.format, c.one)
			must.Succeed(t, err)
			for _, item := range pods[:c.n] {
				must.Succeed(t, p.Print(item))
			}
			must.Succeed(t, p.End("7"))
			if got := out.String(); p.Len() != c.n || got != c.want && (c.format != "yaml" && c.format != "json" || !strings.Contains(got, c.want)) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestFormats(t *testing.T) {
	for format, want := range map[string]string{
		"jsno":                  `there is no format "jsno"; did you mean "json"?`,
		"":                      "there is no format",
		"jsonpath":              "there is no format",
		"jsonpath={.items[":     "write it like jsonpath=",
		"jsonpath={range .x}{y": "write it like jsonpath=",
	} {
		must.Fail(t, Check(format), want)
	}
	p, err := New(io.Discard, "jsonpath={.items[3]}", false)
	must.Succeed(t, err)
	must.Fail(t, p.End(""), "the JSONPath template does not fit the objects")
}

func TestSource(t *testing.T) {
	sources := []api.SourceInfo{
		{Name: "nodes", Resource: "v1/nodes"},
		{Name: "shop-pods", Resource: "v1/pods"},
		{Name: "all-pods", Resource: "v1/pods"},
		{Name: "web", Resource: "apps/v1/deployments"},
		{Name: "rules", Resource: "networking.k8s.io/v1/networkpolicies"},
		{Name: "deploy", Resource: "example.com/v1/deploys"},
		{Name: "sts", Resource: "v1/secrets"},
	}
	for text, want := range map[string]string{
		"nodes": "nodes", "node": "nodes", "no": "nodes", "Node": "nodes", "nodes.v1": "nodes",
		"deployments": "web", "Deployment": "web", "deployments.apps": "web", "deployment.v1.apps": "web", "deployments.batch": "deployments.batch",
		"networkpolicy": "rules", "netpol": "rules", "netpol.networking.k8s.io": "rules",
		"deploy": "deploy", "sts": "sts", "statefulsets": "statefulsets", "": "", "nods": "nods", "nodess": "nodess",
	} {
		if got, err := Source(text, sources); err != nil || got != want {
			t.Errorf("%q means %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"pods", "po", "Pod"} {
		if _, err := Source(text, sources); err == nil || !strings.Contains(err.Error(), "several sources watch "+text+": name one of shop-pods, all-pods") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
