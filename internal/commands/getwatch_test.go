package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
)

// TestGetWatch shows the output of each flag of a watch, and that an end by the router is a
// failure.
func TestGetWatch(t *testing.T) {
	pod := func(kind, name string, version int) api.WatchEvent {
		return api.WatchEvent{Type: kind, Object: json.RawMessage(fmt.Sprintf(`{"kind":"Pod","metadata":{"name":%q,"namespace":"ns","resourceVersion":"%d"}}`, name, version))}
	}
	var asked api.Query
	addr := serveControl(t, api.ControlConfig{Cache: &shelf{}, Watch: func(_ context.Context, q api.Query, show func(api.WatchEvent) error) error {
		asked = q
		if q.Name != "none" {
			_ = show(pod("ADDED", "p1", 1))
		}
		return errors.Join(
			show(api.WatchEvent{Type: api.WatchListed, Reason: "relist", Absent: 2}), show(pod("MODIFIED", "p1", 2)), show(pod("DELETED", "p1", 2)),
			errors.New("the configuration was reloaded"),
		)
	}})
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string
		asked          api.Query
	}{
		{"pods -w", 1, "NAMESPACE  NAME  AGE  VERSION\nns         p1    -    1\nns         p1    -    2\nns         p1    -    2\n", "", api.Query{}},
		{"pods -watch-only", 1, "NAMESPACE  NAME  AGE  VERSION\nns         p1    -    2\nns         p1    -    2\n", "", api.Query{}},
		{
			"pods -w -output-watch-events", 1,
			"EVENT     NAMESPACE  NAME  AGE  VERSION\nADDED     ns         p1    -    1\nMODIFIED  ns         p1    -    2\nDELETED   ns         p1    -    2\n", "",
			api.Query{},
		},
		{"po -o name -w", 1, "ns/p1\nns/p1\nns/p1\n", "", api.Query{}},
		{"pods -o jsonpath={.type}{.object.metadata.resourceVersion} -watch-only -output-watch-events", 1, "MODIFIED2\nDELETED2\n", "", api.Query{}},
		{"pods x/p1 -l a=b -w -o name", 1, "ns/p1\nns/p1\nns/p1\n", "", api.Query{Namespace: "x", Name: "p1", Labels: "a=b"}},
		{"pods -index byNode=n -filter object.x -n ns -w -o name", 1, "ns/p1\nns/p1\nns/p1\n", "", api.Query{Index: "byNode", Value: "n", Filter: "object.x", Namespace: "ns"}},
		{"pods none -w", 1, "", `router get: source pods has no object "none"`, api.Query{Name: "none"}},
		{"pods none -watch-only -o name", 1, "ns/p1\nns/p1\n", "", api.Query{Name: "none"}},
		{"-w", 2, "", "name the source: router get SOURCE …", api.Query{}},
		{"-active r -w", 2, "", "-active ROUTE stands alone", api.Query{}},
		{"pods -output-watch-events", 2, "", "-output-watch-events needs -w or -watch-only", api.Query{}},
		{"pods -w -o jsno", 2, "", `there is no format "jsno"; did you mean "json"?`, api.Query{}},
	} {
		if c.stderr == "" {
			c.stderr = "source pods is not complete yet: relist\n2 objects without a field that the filter needs, which is no match: write has(), or .? with orValue()\n" +
				"router get: the configuration was reloaded\n"
		}
		asked = api.Query{}
		stdout := checkRun(t, append([]string{"get", "-api", addr}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
		if asked.Source, asked.Limit = "", 0; stdout != c.stdout || asked != c.asked {
			t.Errorf("router get %s: asked %+v\n%s\nwant %+v\n%s", c.args, asked, stdout, c.asked, c.stdout)
		}
	}
}

// interrupting is an output that interrupts a command with its first line.
type interrupting struct {
	bytes.Buffer

	interrupt func()
}

// Write implements io.Writer.
func (w *interrupting) Write(text []byte) (int, error) {
	w.interrupt()
	return w.Buffer.Write(text)
}

// TestGetWatchIsInterrupted shows that an interrupt ends a watch with exit code 0 and no message.
func TestGetWatchIsInterrupted(t *testing.T) {
	addr := serveControl(t, api.ControlConfig{Cache: &shelf{}, Watch: func(ctx context.Context, _ api.Query, show func(api.WatchEvent) error) error {
		_ = show(api.WatchEvent{Type: api.WatchAdded, Object: json.RawMessage(`{"metadata":{"name":"p1"}}`)})
		_ = show(api.WatchEvent{Type: api.WatchListed, Synced: true})
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	out, errs := interrupting{interrupt: cancel}, bytes.Buffer{}
	if code := run(ctx, []string{"get", "pods", "-w", "-o", "name", "-api", addr}, &out, &errs); code != 0 || out.String() != "p1\n" || errs.Len() > 0 {
		t.Errorf("exit code %d\nstdout: %s\nstderr: %s", code, &out.Buffer, &errs)
	}
	// interrupted before the first answer
	if code := run(ctx, []string{"get", "pods", "-w", "-api", addr}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d\nstderr: %s", code, &errs)
	}
}
