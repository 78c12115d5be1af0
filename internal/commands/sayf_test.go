package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/test/must"
)

// hostile is a name that clears the screen, forges a line and reverses the text behind it. The API
// server accepts it for a Role.
const hostile = "a\x1b[2J\u009b31m\nnodes   v1/nodes\t\r\u202egnp.exe"

// names answers with hostile names.
type names struct{ api.DeadLetters }

func (names) Sources(context.Context) ([]api.SourceInfo, error) {
	return []api.SourceInfo{{Name: "roles", Resource: hostile}}, nil
}

func (names) Query(context.Context, api.Query) (api.Answer, error) {
	item, err := json.Marshal(map[string]any{"kind": "Role", "metadata": map[string]string{"name": hostile, "resourceVersion": "1"}})
	return api.Answer{Source: "roles", Synced: true, Items: []json.RawMessage{item}}, err
}

func (names) Letters(context.Context, string, uint64, int) ([]api.Letter, error) {
	return []api.Letter{{ID: 1, Route: "r", Error: hostile, Delta: api.Delta{Op: "added", Source: "roles", Key: hostile}}}, nil
}

func (names) Letter(context.Context, uint64) (*api.Letter, error) {
	return &api.Letter{ID: 1, Route: "r", Error: hostile}, nil
}

func (names) Drop(context.Context, api.Selection) (api.Outcome, error) {
	return api.Outcome{NotDone: 1, Failed: []api.Failure{{ID: 1, Error: hostile}}}, nil
}

// TestHostileNames shows that foreign text can neither control the terminal nor forge a line, and
// that JSON keeps it.
func TestHostileNames(t *testing.T) {
	// Guarantee: no-terminal-escapes
	dir := t.TempDir()
	addr := "unix:" + filepath.Join(dir, "api.sock")
	server := api.NewControl(api.ControlConfig{
		Addr: addr, Cache: names{}, DeadLetters: names{}, Log: slog.New(slog.DiscardHandler),
		Status: func(context.Context) api.Status {
			return api.Status{Checks: []api.Check{{Name: "routes/r", Message: hostile}}}
		},
		Active: func(context.Context, api.ActiveQuery) ([]api.Active, bool, error) {
			return []api.Active{{Source: "roles", Name: hostile, State: "entered"}}, false, nil
		},
		Tap: func(_ context.Context, _ api.TapQuery, show func(api.Tapped) error) error {
			return show(api.Tapped{Time: time.Now(), Op: "added", Source: "roles", Key: hostile, Route: "r", Verdict: "error", Reason: hostile})
		},
		Pauser: pauser(func(string) error { return errors.New(hostile) }),
		Resync: func(context.Context, api.Resync) (api.Resynced, error) {
			return api.Resynced{Sources: []api.ResyncedSource{{Name: "roles", Error: hostile}}}, nil
		},
	})
	must.Succeed(t, server.Start(t.Context()))
	defer func() { must.Report(t, server.Close(context.WithoutCancel(t.Context()))) }()
	object, config := filepath.Join(dir, "role.json"), filepath.Join(dir, "config.yaml")
	role, err := json.Marshal(map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]string{"name": hostile, "namespace": "ns", "uid": "u", "resourceVersion": "1"},
	})
	must.Succeed(t, err)
	for file, text := range map[string][]byte{object: role, config: []byte(`version: 1
sources: {roles: {resource: rbac.authorization.k8s.io/v1/roles}}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: roles, filter: object.metadata.name == "x", to: out}]
`)} {
		must.Succeed(t, os.WriteFile(file, text, 0o600))
	}
	for _, c := range []struct {
		args  []string
		lines int  // lines of standard output
		exact bool // JSON that has the name unchanged
	}{
		{[]string{"get", "-api", addr}, 2, false},
		{[]string{"get", "roles", "-api", addr}, 2, false},
		{[]string{"get", "roles", "-o", "name", "-api", addr}, 1, false},
		{[]string{"get", "roles", "-o", "json", "-api", addr}, 0, true},
		{[]string{"get", "-active", "r", "-api", addr}, 2, false},
		{[]string{"get", "-active", "r", "-o", "name", "-api", addr}, 1, false},
		{[]string{"get", "-active", "r", "-o", "json", "-api", addr}, 0, true},
		{[]string{"status", "-api", addr}, 4, false},
		{[]string{"status", "-o", "json", "-api", addr}, 0, true},
		{[]string{"tap", "-api", addr}, 1, false},
		{[]string{"tap", "-o", "json", "-api", addr}, 0, true},
		{[]string{"dlq", "list", "-api", addr}, 2, false},
		{[]string{"dlq", "list", "-o", "json", "-api", addr}, 0, true},
		{[]string{"dlq", "show", "1", "-api", addr}, 0, true},
		{[]string{"dlq", "drop", "1", "-api", addr}, 1, false},
		{[]string{"resync", "-api", addr}, 1, false},
		{[]string{"resume", "r", "-api", addr}, 0, false},
		{[]string{"explain", "-config", config, "-object", object}, 0, false},
		{[]string{"explain", "-config", config, "-object", object, "-o", "json"}, 0, false},
		{[]string{"eval", "object.metadata.name", "-object", object}, 1, true},
		{[]string{"eval", "object.metadata.nme", "-config", config, "-object", object}, 0, false},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			run(t.Context(), c.args, &stdout, &stderr)
			all := stdout.String() + stderr.String()
			if strings.ContainsFunc(all, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }) || strings.Contains(all, "\nnodes ") {
				t.Errorf("got %q", all)
			}
			if n := strings.Count(stdout.String(), "\n"); c.lines > 0 && n != c.lines {
				t.Errorf("%d lines, want %d: %q", n, c.lines, &stdout)
			}
			if text, err := json.Marshal(hostile); c.exact && (err != nil || !strings.Contains(normal(t, stdout.Bytes()), string(text))) {
				t.Errorf("%s has not exactly %s", &stdout, text)
			}
		})
	}
}

// normal returns JSON in the form of the standard library.
func normal(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := json.Marshal(value)
	must.Succeed(t, err)
	return string(text)
}

// TestHostileLog shows the same for values in the log.
func TestHostileLog(t *testing.T) {
	// Guarantee: no-terminal-escapes
	var stderr bytes.Buffer
	cli.Logging{}.New(&stderr).Info("added", "key", hostile)
	if got := stderr.String(); strings.ContainsFunc(strings.TrimSuffix(got, "\n"), func(r rune) bool { return !unicode.IsGraphic(r) }) {
		t.Errorf("got %q", got)
	}
	if text, err := json.Marshal(hostile); err != nil || !strings.Contains(normal(t, stderr.Bytes()), string(text)) {
		t.Errorf("%s has not exactly %s", &stderr, text)
	}
}
