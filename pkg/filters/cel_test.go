package filters_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/must"
)

// oneNode is a cache with one node.
type oneNode struct{ node *event.Object }

func (c oneNode) Lookup(string, string, string) []*event.Object { return []*event.Object{c.node} }
func (c oneNode) Count(string, string, string) int              { return 1 }
func (c oneNode) Get(_, _, name string) *event.Object {
	if name == c.node.Key().Name {
		return c.node
	}
	return nil
}

func compile(t *testing.T, text string) *cel.Program {
	t.Helper()
	env, err := cel.NewEnv(cel.EnvConfig{Cluster: "c", Sources: map[string][]string{"pods": {"name"}, "nodes": {"name"}}})
	must.Succeed(t, err)
	program, err := env.Compile(text, cel.Filter, "pods")
	must.Succeed(t, err)
	return program
}

func TestCEL(t *testing.T) {
	// Guarantee: absent-in-filter
	node := delta(t, "nodes", event.Added, "n1").New
	tests := map[string]struct {
		filter string
		want   bool
		fails  bool
		absent int
	}{
		"match":                   {filter: `object.metadata.name == "a"`, want: true},
		"no match":                {filter: `object.metadata.name == "b"`},
		"absent":                  {filter: `object.spec.replicas > 3`, absent: 1},
		"what fails first counts": {filter: `object.metadata.name > 3 && object.spec.node == "a"`, fails: true},
		"absent first":            {filter: `object.spec.node == "a" && object.metadata.name > 3`, absent: 1},
		"false absorbs":           {filter: `object.metadata.name > 3 && object.metadata.name == "b"`},
		"optional":                {filter: `object.?spec.replicas.orValue(4) > 3`, want: true},
		"type":                    {filter: `object.metadata.name > 3`, fails: true},
		"lookup":                  {filter: `get("nodes", "", "n1") != null`, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			absent := 0
			f := filters.NewCEL(filters.CELConfig{Program: compile(t, test.filter), Cache: oneNode{node}, Absent: func(n uint64) { absent += int(n) }})
			got, err := f.Match(t.Context(), delta(t, "pods", event.Added, "a"))
			if got != test.want || (err != nil) != test.fails || absent != test.absent {
				t.Errorf("got %v, %v and %d absent fields, want %v and %d", got, err, absent, test.want, test.absent)
			}
			if errors.Is(err, cel.ErrAbsent) {
				t.Errorf("an absent field must not be an error: %v", err)
			}
		})
	}
}

func TestCELLogsAbsentOnce(t *testing.T) {
	// Guarantee: absent-in-filter
	var log bytes.Buffer
	counted := 0
	f := filters.NewCEL(filters.CELConfig{
		Program: compile(t, `object.spec.replicas > 3`), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Absent: func(n uint64) { counted += int(n) },
		Place:  placed(func(e *cel.EvalError) string { return fmt.Sprintf("config.yaml:7:%d", 11+e.Column) }),
	})
	for range 3 {
		if ok, err := f.Match(t.Context(), delta(t, "pods", event.Added, "a")); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || counted != 3 {
		t.Errorf("%d lines and %d counted, want 1 and 3", n, counted)
	}
	if !strings.Contains(log.String(), "at=config.yaml:7:") {
		t.Errorf("no place in %s", log.String())
	}
}

// placed makes a CELConfig.Place of a function that gets the error of an expression.
func placed(at func(*cel.EvalError) string) func(error) string {
	return func(err error) string {
		if e, ok := errors.AsType[*cel.EvalError](err); ok {
			return at(e)
		}
		return ""
	}
}
