package commands

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// twoPods has two pods on the node n1, on two pages.
type twoPods struct{}

func (twoPods) Sources(context.Context) ([]api.SourceInfo, error) { return nil, nil }

func (twoPods) Query(_ context.Context, q api.Query) (api.Answer, error) {
	switch {
	case q.Source != "pods":
		return api.Answer{}, &api.QueryError{Message: "there is no source " + q.Source, Unknown: true}
	case q.After == (event.Key{}):
		item := json.RawMessage(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"ns"},"spec":{"nodeName":"n1"}}`)
		return api.Answer{Items: []json.RawMessage{item}, Continue: api.Token(event.Key{Namespace: "ns", Name: "a"})}, nil
	}
	return api.Answer{Items: []json.RawMessage{json.RawMessage(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"ns"},"spec":{"nodeName":"n1"}}`)}}, nil
}

// TestExplainAPI: look-ups of explain and eval find the cached objects of the running router.
func TestExplainAPI(t *testing.T) {
	addr := serveControl(t, api.ControlConfig{Cache: twoPods{}})
	t.Chdir(t.TempDir())
	for file, text := range map[string]string{
		"node.yaml": "{apiVersion: v1, kind: Node, metadata: {name: n1}}",
		"config.yaml": `version: 1
sources: {nodes: {resource: v1/nodes}, pods: {resource: v1/pods, indexes: {byNode: object.spec.nodeName}}}
sinks: {out: {stdout: {}}}
routes: [{name: busy, from: nodes, filter: 'count("pods.byNode", object.metadata.name) > 1', to: out}]
`,
	} {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
	explain := []string{"explain", "-object", "node.yaml", "-api", addr}
	checkRun(t, explain, cli.CodeOK, `count("pods.byNode", object.metadata.name) = 2`, "")
	checkRun(t, []string{"eval", `lookup("pods.byNode", "n1").map(p, p.metadata.name)`, "-config", "config.yaml", "-object", "node.yaml", "-api", addr}, cli.CodeOK,
		"[\n  \"a\",\n  \"b\"\n]\n", "")
	checkRun(t, []string{"eval", `size(list("nodes"))`, "-config", "config.yaml", "-object", "node.yaml", "-api", addr}, cli.CodeUsage, "", "there is no source nodes")
	explain[len(explain)-1] += "x"
	checkRun(t, explain, cli.CodeUsage, "", "is it running")
}
