package commands

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

// desk has the dead letters 1 and 2.
type desk struct{}

func (desk) Letters(context.Context, string, uint64, int) ([]api.Letter, error) {
	return []api.Letter{
		{ID: 1, Time: time.Now().Add(-3 * time.Hour), Route: "r", Sink: "hook", Error: "HTTP 400\n\x1b[31mred", Attempts: 4, Delta: api.Delta{Op: "added", Source: "pods", Key: "ns/a"}},
		{ID: 2, Time: time.Now().Add(-72 * time.Hour), Route: "r", Error: strings.Repeat("ü", 200), Attempts: 1, Delta: api.Delta{Op: "deleted", Source: "pods", Key: "ns/b"}},
	}, nil
}

func (desk) Letter(context.Context, uint64) (*api.Letter, error) {
	return &api.Letter{ID: 1, Delta: api.Delta{Object: []byte(`{"kind":"Pod"}`)}}, nil
}

func (desk) Retry(_ context.Context, which api.Selection, current bool) (outcome api.Outcome, err error) {
	outcome.Done = 1
	if current {
		outcome.Gone = 1
	}
	if len(which.IDs) > 1 {
		outcome.Fail(which.IDs[1], errors.New("route is paused"))
	}
	return outcome, nil
}

func (desk) Drop(context.Context, api.Selection) (api.Outcome, error) {
	return api.Outcome{Done: 2}, nil
}

func TestDeadLetters(t *testing.T) {
	dir := t.TempDir()
	addr := serveControl(t, api.ControlConfig{DeadLetters: desk{}})
	with, without := filepath.Join(dir, "with.yaml"), filepath.Join(dir, "without.yaml")
	for file, text := range map[string]string{with: good + "listen: {api: \"" + addr + "\"}\n", without: good} {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"", 2, "", "Usage:"},
		{"help", 0, "retry", ""},
		{"retry -h", 0, "-current", ""},
		{"lst", 2, "", `there is no command "lst"; did you mean "list"? See router help dlq`},
		{"list", 2, "", "config.yaml: "},
		{"list -config " + without, 2, "", `add listen: {api: "127.0.0.1:8484"}`},
		{"list -config " + filepath.Join(dir, "none.yaml"), 2, "", "none.yaml"},
		{"list -api unix:" + filepath.Join(dir, "none.sock"), 1, "", "is it running"},
		{"list -config " + with, 0, "1   3h   r      hook  added pods ns/a    4         HTTP 400 \\u001b[31mred\n2   3d   r      -     deleted pods ns/b  1         " + strings.Repeat("ü", 200) + "\n", ""},
		{"list -o json -api " + addr, 0, `"error": "HTTP 400\n\u001b[31mred"`, ""},
		{"list -o yaml -api " + addr, 2, "", "table or json"},
		{"list 3 -api " + addr, 2, "", `unexpected argument "3"`},
		{"show 1 -api " + addr, 0, `"kind": "Pod"`, ""},
		{"show x -api " + addr, 2, "", `"x" is not a valid id`},
		{"retry -api " + addr, 2, "", "-route ROUTE"},
		{"retry 1 -route r -api " + addr, 2, "", "either ids"},
		{"retry 1 -api " + addr, 0, "Retrying 1 dead letter.\n", ""},
		{"retry -current -route r -api " + addr, 0, "Dropped 1 dead letter: the object", ""},
		{"retry 1 -api " + addr + " 2", 1, "Retrying 1 dead letter.\n", "dead letter 2: route is paused\nrouter dlq retry: 1 dead letter left unchanged\n"},
		{"drop -current 1", 2, "", "-current"},
		{"drop 1 2 -api " + addr, 0, "Dropped 2 dead letters.\n", ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			stdout := checkRun(t, append([]string{"dlq"}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
			if strings.Contains(stdout, "\x1b") {
				t.Error("the terminal was steered")
			}
		})
	}
}
