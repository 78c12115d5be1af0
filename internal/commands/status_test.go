package commands

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestStatus shows that the status has the reasons, which the probes do not show.
func TestStatus(t *testing.T) {
	status := api.Status{
		Checks: []api.Check{{Name: "sources/pods", OK: true, Holds: true}, {Name: "sinks/hook", Message: "answered 503"}},
		Routes: []api.RouteStatus{{Name: "r", Pending: 3, Bytes: 3 << 20, DeadLetters: 1, EvictedLetters: 4, Counts: &api.RouteCounts{
			Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Matched: 24, Delivered: 10, HeldBack: 2, Coalesced: 3, Dropped: 4, Failed: 7, DeadLettered: 2, Shadowed: 3,
		}}, {Name: "w"}},

		Handlers: []api.HandlerStatus{{Name: "h", Kind: "wasm", SHA256: "0abc"}},
	}
	addr := serveControl(t, api.ControlConfig{Status: func(context.Context) api.Status { return status }})
	for _, c := range []struct {
		args   []string
		holds  bool // the source that is not ready
		code   int
		stdout string // contained
		stderr string
	}{
		{args: []string{"help"}, stdout: "Usage:"},
		{args: []string{"pods"}, code: 2, stderr: `unexpected argument "pods"`},
		{args: nil, code: 2, stderr: "config.yaml: "},
		{args: []string{"-api", addr + "x"}, code: 1, stderr: "is it running"},
		{args: []string{"-api", addr}, stdout: "ROUTE  PENDING  IN MEMORY  ON DISK  DEAD LETTERS\nr      3        3.0 MiB    0        1 (4 evicted)\nw      0        0 bytes    0        0\n\n" +
			"ROUTE  MATCHED  DELIVERED  HELD BACK  COALESCED  DROPPED  FAILED  DEAD-LETTERED  SHADOWED  SINCE\nr      24       10         2          3          4        7       2              3         2026-01-02T03:04:05Z\n\nHANDLER  KIND  SHA256\nh        wasm  0abc\n\nsinks/hook: answered 503\nready\n"},
		{args: []string{"-api", addr}, holds: true, code: 1, stdout: "sources/pods: listing\nsinks/hook: answered 503\nnot ready\n"},
		{args: []string{"-api", addr, "-o", "json"}, holds: true, code: 1, stdout: `"message": "listing"`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			status.Checks[0] = api.Check{Name: "sources/pods", OK: !c.holds, Holds: true, Message: "listing"}
			checkRun(t, append([]string{"status"}, c.args...), c.code, c.stdout, c.stderr)
		})
	}
}

// TestStatusOfObjects shows that the status says which objects are read for routes.
func TestStatusOfObjects(t *testing.T) {
	var out bytes.Buffer
	must.Succeed(t, printObjects(&out, nil))
	must.Succeed(t, printObjects(&out, []api.ObjectsStatus{{Kind: "Route", Namespaces: []string{"payments", "shop"}}, {Kind: "ClusterRoute"}}))
	must.Succeed(t, printObjects(&out, []api.ObjectsStatus{{Kind: "Route", Namespaces: []string{"*"}}}))
	const want = `
OBJECTS       GRANTED NAMESPACES  OTHERS
Route         payments, shop      ignored: customResources.routes.namespaces grants them
ClusterRoute  none                ignored: customResources.clusterRoutes grants them

OBJECTS  GRANTED NAMESPACES  OTHERS
Route    all                 -
`
	if out.String() != want {
		t.Errorf("got %s\nwant %s", out.String(), want)
	}
}
