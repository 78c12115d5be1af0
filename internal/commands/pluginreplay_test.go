package commands

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/solo"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// recordedCall lets the handler of config.yaml fail at pods.yaml, and returns the record.
func recordedCall(t *testing.T) *callrecord.Record {
	t.Helper()
	h, err := solo.Open(t.Context(), solo.Options{Config: "config.yaml", Components: components(), Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	defer func() { must.Report(t, h.Close(context.WithoutCancel(t.Context()))) }()
	deltas, err := h.Objects([]byte(alonePods))
	must.Succeed(t, err)
	var last plugins.Result
	for _, d := range deltas {
		last, err = h.Handle(t.Context(), d)
		must.Succeed(t, err)
	}
	rec := callrecord.Of(last.Err)
	if rec == nil {
		t.Fatalf("no record: %v", last.Err)
	}
	return rec
}

// writeLetter writes a dead letter with the record, changed.
func writeLetter(t *testing.T, file string, rec *callrecord.Record, change func(*callrecord.Record)) json.RawMessage {
	t.Helper()
	changed := *rec
	change(&changed)
	text, err := changed.Encode()
	must.Succeed(t, err)
	letter, err := json.MarshalIndent(api.Letter{ID: 17, Call: text}, "", "  ")
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(file, letter, 0o600))
	return text
}

// recordedDesk has one dead letter.
type recordedDesk struct {
	desk

	call json.RawMessage
}

func (d recordedDesk) Letter(context.Context, uint64) (*api.Letter, error) {
	return &api.Letter{ID: 17, Call: d.call}, nil
}

func TestPluginReplay(t *testing.T) {
	writeAlone(t)
	rec := recordedCall(t)
	call := writeLetter(t, "letter.json", rec, func(*callrecord.Record) {})
	writeLetter(t, "other.json", rec, func(r *callrecord.Record) { r.Module = "0123456789abcdef" })
	writeLetter(t, "with.json", rec, func(r *callrecord.Record) { r.Calls, r.With = nil, "added pods shop/first" })
	writeLetter(t, "large.json", rec, func(r *callrecord.Record) { r.Calls = nil })
	writeLetter(t, "partial.json", rec, func(r *callrecord.Record) { r.Earlier, r.Omitted, r.Settings, r.Fuel = 1, 2, "", 1 })
	writeLetter(t, "hostile.json", rec, func(r *callrecord.Record) {
		r.Handler, r.Module, r.Calls = "\x1b[31m", "\x1b[31m", []callrecord.Call{{Batch: []*event.Delta{rec.Calls[0].Batch[0]}}}
	})
	must.Succeed(t, os.WriteFile("old.json", []byte(`{"id": 17, "error": "oh"}`), 0o600))
	must.Succeed(t, os.WriteFile("sink.json", []byte(`{"id": 17, "sink": "hook"}`), 0o600))
	must.Succeed(t, os.WriteFile("damaged.json", []byte(`{"id": 17, "call": {"calls": [{}]}}`), 0o600))
	addr := serveControl(t, api.ControlConfig{DeadLetters: recordedDesk{call: call}})
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"-file letter.json", cli.CodeFailed, "handler summary (wasm), module ", ""},
		{"-file letter.json", cli.CodeFailed, ": updated pods shop/web\nverdict: fail: as you wish (as recorded)\nfuel: ", ""},
		{"-file letter.json", cli.CodeFailed, " of 75000000 (as recorded)\n\nFUEL", ""},
		{"-file letter.json -o json", cli.CodeFailed, `"verdict": "fail",`, ""},
		{"-api " + addr + " 17", cli.CodeFailed, "verdict: fail: as you wish (as recorded)", ""},
		{"-file other.json", cli.CodeUsage, "", "and the call was recorded with module 0123456789ab: get that module, or add -other-module"},
		{"-file other.json -other-module", cli.CodeFailed, "note: the handler runs another module than the recorded one\n", ""},
		{"-file partial.json", cli.CodeFailed, "(recorded: 1)\nnote: the configuration or the limits of the handler have changed since\nnote: the guest had handled 1 call before", ""},
		{"-file partial.json", cli.CodeFailed, "note: the call had 2 deltas more, which the record does not have: its fuel differs, and so may its clock and random numbers\n", ""},
		{"-file with.json", cli.CodeUsage, "", "failed in the same call as added pods shop/first: replay the dead letter of that one"},
		{"-file large.json", cli.CodeUsage, "", "has no deltas: they exceed 256 KiB"},
		{"-file old.json", cli.CodeUsage, "", "dead letter 17 has no record of a call: its handler runs no module"},
		{"-file sink.json", cli.CodeUsage, "", `the sink "hook" refused its event, the handler did not fail`},
		{"-file damaged.json", cli.CodeUsage, "", "damaged.json: dead letter 17: the record of a call is malformed: a call without deltas"},
		{"-file hostile.json", cli.CodeUsage, "", "there is no handler"},
		{"-file hostile.json -handler summary", cli.CodeUsage, "", "the call was recorded with module "},
		{"-file pods.yaml", cli.CodeUsage, "", "pods.yaml: it is not one dead letter in JSON"},
		{"-file absent.json", cli.CodeUsage, "", "there is no file absent.json"},
		{"", cli.CodeUsage, "", "name one dead letter by its id"},
		{"1 2", cli.CodeUsage, "", "name one dead letter by its id"},
		{"-file letter.json 1", cli.CodeUsage, "", "name one dead letter by its id"},
		{"letter.json", cli.CodeUsage, "", `"letter.json" is not a valid id: router dlq list shows the ids; a file needs -file`},
		{"-api unix:" + filepath.Join(t.TempDir(), "none.sock") + " 17", cli.CodeFailed, "", "is it running"},
	} {
		t.Run(c.args, func(t *testing.T) {
			stdout := checkRun(t, append([]string{"plugin", "replay"}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
			if strings.Contains(stdout, "\x1b") {
				t.Error("the terminal was steered")
			}
		})
	}
}
