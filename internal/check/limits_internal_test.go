package check

import (
	"context"
	"errors"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/must"
)

// bounded is the kind stdout with a receiver of a limit.
type bounded struct {
	plugins.SinkKind

	most int64
	err  error
}

func (b bounded) MaxEvent(context.Context, config.Node) (bytes int64, setting string, err error) {
	return b.most, "its limit", b.err
}

// TestTooSmall: a sink that does not take two states of the largest object is named with the routes
// that send these.
func TestTooSmall(t *testing.T) {
	const text = "config.yaml:3:14: warning: sinks.out: it takes events of at most 1048576 bytes, and an update in route whole, more, without emit, " +
		"has two states of an object: larger ones become dead letters. Write an emit with the fields that the receiver needs, or raise its limit"
	cfg, problems := config.Parse("config.yaml", []byte(`version: 1
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
routes:
  - {name: whole, from: [pods], to: out}
  - {name: more, from: [pods], to: [out, {route: next}]}
  - {name: next, to: out, emit: '{"name": object.metadata.name}'}
`), config.Policy{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		kind plugins.SinkKind
		want string
	}{
		{bounded{stdout.Kind(), 1 << 20, nil}, text},
		{bounded{stdout.Kind(), 3 << 20, nil}, ""},
		{bounded{stdout.Kind(), 0, nil}, ""},
		{bounded{stdout.Kind(), 0, errors.New("away")}, ""},
		{stdout.Kind(), ""},
	} {
		found := tooSmall(t.Context(), cfg, []plugins.SinkKind{c.kind})
		if c.want == "" {
			must.Succeed(t, found.Err())
			continue
		}
		if len(found) != 1 || found[0].Error() != c.want {
			t.Errorf("%v, want %s", found, c.want)
		}
	}
}
