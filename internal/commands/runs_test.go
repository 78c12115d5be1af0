package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
)

// followed is an api.History whose streams of a route have these decisions and then end, except for
// the last one.
type followed struct {
	api.History

	streams [][]api.Run
	asked   []api.RunsQuery
}

// interruptedBy is an output that interrupts a command when it has a text.
type interruptedBy struct {
	bytes.Buffer

	text string
	stop context.CancelFunc
}

func (o *interruptedBy) Write(p []byte) (int, error) {
	defer func() {
		if strings.Contains(o.String(), o.text) {
			o.stop()
		}
	}()
	return o.Buffer.Write(p)
}

func (f *followed) FollowRuns(ctx context.Context, q api.RunsQuery, show func(api.RunEvent) error) error {
	f.asked = append(f.asked, q)
	if q.Route != "r" {
		return &api.QueryError{Message: "there is no such route", Unknown: true}
	}
	now := f.streams[0]
	f.streams = f.streams[1:]
	listed := show(api.RunEvent{Run: &now[0]})
	listed = errors.Join(listed, show(api.RunEvent{Listed: &api.HistoryGaps{}}))
	for i := range now[1:] {
		listed = errors.Join(listed, show(api.RunEvent{Run: &now[1+i], Missed: int64(i)}))
	}
	if len(f.streams) == 0 {
		<-ctx.Done()
	}
	return listed
}

// TestRunsFollow: a follower prints the decisions of a route once, also those of the time in which
// the router did not answer, and says when that begins and ends.
func TestRunsFollow(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 11, 30, 12, 0, second, 0, time.UTC) }
	one := func(second int, name string) api.Run {
		return api.Run{Time: at(second), Source: "pods", Namespace: "shop", Name: name, Op: "updated", Decision: api.Decision{Outcome: "delivered", Seen: at(second)}}
	}
	names := func(out string) (all []string) {
		for line := range strings.Lines(out) {
			var run api.Run
			if json.Unmarshal([]byte(line), &run) == nil {
				all = append(all, run.Name)
			}
		}
		return all
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	h := &followed{streams: [][]api.Run{
		{one(1, "a"), one(2, "b"), one(2, "c"), one(2, "d")},
		{one(2, "d"), one(2, "c"), one(2, "e"), one(3, "f")},
	}}
	addr := serveControl(t, api.ControlConfig{History: h})
	var errs bytes.Buffer
	out := &interruptedBy{text: `"name":"f"`, stop: stop}
	if code := run(ctx, []string{"runs", "r", "-w", "-failed", "-o", "json", "-api", addr}, out, &errs); code != 0 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	if got := strings.Join(names(out.String()), ""); got != "abcdef" {
		t.Errorf("printed %s, want each decision once:\n%s", got, out)
	}
	want := "1 decision came too fast to be shown: router runs has them\n2 decisions came too fast to be shown: router runs has them\n" +
		"the router closed the stream; waiting for it\nthe router answers again\n1 decision came"
	if !strings.HasPrefix(errs.String(), want) {
		t.Errorf("said\n%s\nwant\n%s", &errs, want)
	}
	if len(h.asked) != 2 || h.asked[0].Limit != 20 || h.asked[1].Limit != mostRuns || !h.asked[1].Since.Equal(at(2)) || !h.asked[1].Failed {
		t.Errorf("asked %+v", h.asked)
	}

	h.streams = [][]api.Run{{one(1, "a")}}
	checkRun(t, []string{"runs", "none", "-w", "-api", addr}, 1, "", "there is no such route")
	const line = "updated  pods  shop/a  delivered 0s after the change\n"
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	out = &interruptedBy{text: line, stop: stop}
	if code := run(ctx, []string{"runs", "r", "-w", "-api", addr}, out, &errs); code != 0 || !strings.Contains(out.String(), line) {
		t.Errorf("exit code %d: %s", code, out)
	}
}
