package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/api"
)

func TestResync(t *testing.T) {
	addr := "unix:" + filepath.Join(t.TempDir(), "api.sock")
	server := api.NewControl(api.ControlConfig{
		Addr: addr, Log: slog.New(slog.DiscardHandler),
		Resync: func(_ context.Context, ask api.Resync) (done api.Resynced, err error) {
			switch {
			case ask.Source == "none":
				return done, errors.New(`there is no source "none"`)
			case ask.Relist:
				done.Sources = []api.ResyncedSource{{Name: "pods", Objects: 3, Deltas: 1}, {Name: "nodes", Unsynced: "forbidden", Error: "it is listed later"}}
			default:
				done.Sources = []api.ResyncedSource{{Name: "pods", Objects: 3, Taken: 2, Unsynced: "the first list is not complete"}}
			}
			return done, nil
		},
	})
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	at := " -api " + addr
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"help", 0, "-relist", ""},
		{"-h", 0, "-relist", ""},
		{"", 2, "", "-config FILE or -api ADDR"},
		{"pods" + at, 2, "", `unexpected argument "pods"`},
		{"-all" + at, 2, "", "-all"},
		{"-o yaml" + at, 2, "", "table or json"},
		{"-api unix:" + filepath.Join(t.TempDir(), "none"), 1, "", "is it running"},
		{"-source none" + at, 1, "", `router resync: there is no source "none"`},
		{at, 0, "source pods: 3 objects put through, 2 go to a route\n", "source pods is not complete yet: the first list is not complete"},
		{"-route r" + at, 0, "source pods: 3 objects put through, 2 go to route r\n", ""},
		{"-o json" + at, 0, `"taken": 2`, ""},
		{"-relist" + at, 1, "source pods: 3 objects listed, 1 deltas of what differs\nsource nodes: not listed\n", "1 of 2 sources were not put through to the end"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"resync"}, strings.Fields(c.args)...), &stdout, &stderr)
		if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("router resync %s: exit code %d\n%s%s", c.args, code, stdout.String(), stderr.String())
		}
	}
}
