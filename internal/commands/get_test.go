package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// shelf has two pods, on two pages, and records its last query.
type shelf struct{ asked api.Query }

func (*shelf) Sources(context.Context) ([]api.SourceInfo, error) {
	return []api.SourceInfo{
		{Name: "nodes", Resource: "v1/nodes", Cache: "full", Indexes: []string{"name"}, Objects: 2, Synced: true},
		{Name: "pods", Resource: "v1/pods", Namespaces: []string{"a", "b"}, Cache: "full", Indexes: []string{"name", "byNode"}},
	}, nil
}

func (s *shelf) Query(_ context.Context, q api.Query) (api.Answer, error) {
	s.asked = q
	answer := api.Answer{Source: q.Source, Resource: "v1/pods", ResourceVersion: "7", Reason: "the first list is not complete"}
	pod := func(n int) json.RawMessage {
		born := time.Now().Add(-3 * time.Hour).Format(time.RFC3339)
		return json.RawMessage(fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"p%d","namespace":"ns","resourceVersion":"%d","creationTimestamp":%q}}`, n, n, born))
	}
	switch {
	case q.Source != "pods":
		return answer, &api.QueryError{Message: `there is no source "pots"; did you mean "pods"?`, Unknown: true}
	case q.Name == "none":
	case q.Filter != "":
		answer.Absent = 2
	case q.Name != "":
		answer.Synced, answer.Items = true, []json.RawMessage{pod(1)}
	case q.After == (event.Key{}):
		answer.Items, answer.Continue = []json.RawMessage{pod(1)}, api.Token(event.Key{Namespace: "ns", Name: "p1"})
	default:
		answer.Items = []json.RawMessage{pod(2)}
	}
	return answer, nil
}

// active has two objects of the route down, on two pages.
func active(_ context.Context, q api.ActiveQuery) (items []api.Active, more bool, err error) {
	now := time.Now()
	switch {
	case q.Route == "calm":
		return nil, false, nil
	case q.Route != "down":
		return nil, false, &api.QueryError{Message: "there is no route " + q.Route, Unknown: true}
	case q.After == (api.Active{}):
		return []api.Active{{Source: "nodes", Name: "n1", Since: now.Add(-5 * time.Hour), State: "entered", Reported: true, Remind: now.Add(150 * time.Minute), Repeats: 2}}, true, nil
	}
	return []api.Active{{Source: "pods", Namespace: "ns", Name: "p1", Since: now.Add(-3 * time.Hour), State: "pending", Due: now.Add(-time.Minute)}}, false, nil
}

func TestGet(t *testing.T) {
	s := &shelf{}
	addr := serveControl(t, api.ControlConfig{Cache: s, Active: active})
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string // contained
		asked          api.Query
	}{
		{args: []string{"help"}, stdout: "Usage:"},
		{args: []string{"-h"}, stdout: "Usage:"},
		{args: []string{"pods"}, code: 2, stderr: "config.yaml: "},
		{args: []string{"pods", "-o", "wid", "-api", addr}, code: 2, stderr: `-o: there is no format "wid"; did you mean "wide"? See router help get`},
		{args: []string{"-o", "jsonpath={.x}", "-api", addr}, code: 2, stderr: "name a source, or use -o json"},
		{args: []string{"pods", "-A", "-n", "x", "-api", addr}, code: 2, stderr: "-A is all namespaces, -n one"},
		{args: []string{"pods/p1", "p2", "-api", addr}, code: 2, stderr: `unexpected argument "p2": pods/p1 names the object`},
		{args: []string{"-l", "app=web", "-api", addr}, code: 2, stderr: "name the source"},
		{args: []string{"pods", "a", "b", "-api", addr}, code: 2, stderr: `unexpected argument "b"`},
		{args: []string{"-n", "a", "-api", addr}, code: 2, stderr: "name the source"},
		{args: []string{"pods", "-index", "byNode", "-api", addr}, code: 2, stderr: "write it like byNode=n1"},
		{args: []string{"pods", "-indx", "byNode", "-api", addr}, code: 2, stderr: `there is no flag -indx; did you mean "-index"? See router help get`},
		{args: []string{"pods", "-api", addr + "x"}, code: 1, stderr: "is it running"},
		{args: []string{"pots", "-api", addr}, code: 1, stderr: "router get: there is no source \"pots\"; did you mean \"pods\"?\n"},
		{args: []string{"-api", addr}, stdout: "SOURCE  RESOURCE  NAMESPACES  OBJECTS  SYNCED  INDEXES\nnodes   v1/nodes  all         2        true    name\npods    v1/pods   a,b         0        false   name,byNode\n"},
		{args: []string{"-api", addr, "-o", "name"}, stdout: "nodes\npods\n"},
		{args: []string{"-api", addr, "-o", "yaml"}, stdout: "- cache: full\n  indexes:\n  - name\n"},
		{
			args:   []string{"pods", "-api", addr},
			stdout: "NAMESPACE  NAME  AGE  VERSION\nns         p1    3h   1\nns         p2    3h   2\n", stderr: "source pods is not complete yet: the first list",
		},
		{args: []string{"pods", "-o", "name", "-api", addr}, stdout: "ns/p1\nns/p2\n"},
		{args: []string{"po", "-A", "-l", "app in (a, b)", "-o", "name", "-api", addr}, stdout: "ns/p1\nns/p2\n", asked: api.Query{Labels: "app in (a, b)"}},
		{args: []string{"Pod/p1", "-o", "name", "-api", addr}, stdout: "ns/p1\n", asked: api.Query{Name: "p1"}},
		{args: []string{"pod/x/p1", "-o", "name", "-api", addr}, stdout: "ns/p1\n", asked: api.Query{Namespace: "x", Name: "p1"}},
		{args: []string{"pods", "-o", "wide", "-api", addr}, stdout: "VERSION  UID  CONTROLLER  LABELS\n"},
		{args: []string{"pods/p1", "-o", "jsonpath={.kind}", "-api", addr}, stdout: "Pod", asked: api.Query{Name: "p1"}},
		{args: []string{"pods", "-o", `jsonpath={.items[*].metadata.name}`, "-api", addr}, stdout: "p1 p2"},
		{args: []string{"-o", "wide", "-api", addr}, stdout: "SOURCE  RESOURCE"},
		{args: []string{"pods", "-o", "yaml", "-api", addr}, stdout: "\n---\nkind: Pod\n"},
		{args: []string{"pods", "-o", "json", "-api", addr}, stdout: "\n], \"metadata\": {\"resourceVersion\": \"7\"}}\n"},
		{args: []string{"pods", "-o", "json", "p1", "-api", addr}, stdout: "{\n  \"kind\": \"Pod\",", asked: api.Query{Name: "p1"}},
		{args: []string{"pods", "x/p1", "-o", "yaml", "-api", addr}, stdout: "kind: Pod\n", asked: api.Query{Namespace: "x", Name: "p1"}},
		{args: []string{"-api", addr, "-n", "x", "pods", "none"}, code: 1, stderr: `source pods has no object "x/none"`, asked: api.Query{Namespace: "x", Name: "none"}},
		{
			args: []string{"pods", "-filter", "object.x", "-o", "json", "-api", addr}, stdout: `"items": []`,
			stderr: "2 objects without a field", asked: api.Query{Filter: "object.x"},
		},
		{args: []string{"pods", "-filter", "object.x", "-api", addr}, stderr: "No objects.\n", asked: api.Query{Filter: "object.x"}},
		{args: []string{"pods", "-index", "byNode=a=b", "-api", addr}, stdout: "p2", asked: api.Query{Index: "byNode", Value: "a=b"}},
		{
			args: []string{"-active", "down", "-api", addr},
			stdout: "SOURCE  NAMESPACE  NAME  STATE    SINCE  DUE    REMINDER  REPEATS\n" +
				"nodes   -          n1    entered  5h     -      in 2h     2\npods    ns         p1    pending  3h     in 0s  -         0\n",
		},
		{args: []string{"-active", "down", "-o", "name", "-api", addr}, stdout: "n1\nns/p1\n"},
		{args: []string{"-active", "down", "-o", "yaml", "-api", addr}, stdout: "\n- due: "},
		{args: []string{"-active", "down", "-o", "json", "-api", addr}, stdout: ",\n{\"source\":\"pods\",\"namespace\":\"ns\",\"name\":\"p1\",\"since\":"},
		{args: []string{"-active", "calm", "-o", "json", "-api", addr}, stdout: "[]\n"},
		{args: []string{"-active", "calm", "-api", addr}, stderr: "It holds for no object.\n"},
		{args: []string{"-active", "up", "-api", addr}, code: 1, stderr: "router get: there is no route up\n"},
		{args: []string{"-active", "down", "pods", "-api", addr}, code: 2, stderr: "stands alone"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			s.asked = api.Query{}
			stdout := checkRun(t, append([]string{"get"}, c.args...), c.code, c.stdout, c.stderr)
			s.asked.Source, s.asked.Limit, s.asked.After = "", 0, event.Key{}
			if s.asked != c.asked {
				t.Errorf("asked %+v, want %+v", s.asked, c.asked)
			}
			if c.code == 0 && (strings.HasPrefix(stdout, "{") || strings.HasPrefix(stdout, "[")) && !json.Valid([]byte(stdout)) {
				t.Errorf("not JSON: %s", stdout)
			}
		})
	}
}
