package commands

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
)

func TestTap(t *testing.T) {
	show := func(_ context.Context, q api.TapQuery, show func(api.Tapped) error) error {
		if q.Route != "" {
			return &api.QueryError{Message: "there is no route " + q.Route, Unknown: true}
		}
		at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.Local)
		return errors.Join(show(api.Tapped{}), show(api.Tapped{
			Time: at, Op: "added", Source: "pods", Key: "ns/a", Route: "r", Verdict: "no match", Why: "a ==\n  1", At: "c.yaml:1:2", Reason: "no such key", Missed: 2,
		}), show(api.Tapped{
			Time: at, Op: "updated", Source: "nodes", Key: "n", Route: "down", Verdict: "holds", State: "entered", Since: at.Add(-time.Minute).UTC(), Due: at.Add(24 * time.Hour).UTC(),
		}))
	}
	addr := serveControl(t, api.ControlConfig{Tap: show})
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"help", 0, "Usage:", ""},
		{"r", 2, "", `unexpected argument "r"`},
		{"-route r", 2, "", "config.yaml: "},
		{"-o yaml -api " + addr, 2, "", "-o yaml: write text or json."},
		{"-route r -api " + addr, 1, "", "there is no route r"},
		{"-api " + addr, 1, "… 2 more\n03:04:05.006 added pods ns/a  r: no match: a == 1  (c.yaml:1:2): no such key\n", "the router closed the tap"},
		{"-api " + addr, 1, "updated nodes n  down: holds, entered since 03:03:05, due at 2026-01-03 03:04:05\n", "the router closed the tap"},
		{
			"-color always -api " + addr, 1,
			"\x1b[2m03:04:05.006\x1b[0m \x1b[32madded\x1b[0m pods \x1b[1mns/a\x1b[0m  r: \x1b[2mno match\x1b[0m: a == 1  (c.yaml:1:2): no such key\n", "closed",
		},
		{"-color auto -api " + addr, 1, "added pods ns/a  r: no match", "closed"},
		{"-color often -api " + addr, 2, "", "auto, always or never"},
		{"-o json -api " + addr, 1, `"key":"ns/a","route":"r","verdict":"no match"`, "the router closed the tap"},
	} {
		checkRun(t, append([]string{"tap"}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
	}
}
