package commands

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
)

func TestResync(t *testing.T) {
	repeated := 0
	addr := serveControl(t, api.ControlConfig{
		Resync: func(_ context.Context, ask api.Resync) (done api.Resynced, err error) {
			switch {
			case ask.Source == "none":
				return done, errors.New(`there is no source "none"`)
			case ask.Route == "level":
				if !ask.DryRun {
					repeated++
				}
				done.Sources, done.Repeats = []api.ResyncedSource{{Name: "pods", Objects: 3, Taken: 2}}, true
			case ask.Relist:
				done.Sources = []api.ResyncedSource{{Name: "pods", Objects: 3, Deltas: 1}, {Name: "nodes", Unsynced: "forbidden", Error: "it is listed later"}}
			default:
				done.Sources = []api.ResyncedSource{{Name: "pods", Objects: 3, Taken: 2, Unsynced: "the first list is not complete"}}
			}
			return done, nil
		},
	})
	at := " -api " + addr
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"help", 0, "-relist", ""},
		{"-h", 0, "-relist", ""},
		{"", 2, "", "config.yaml: "},
		{"pods" + at, 2, "", `unexpected argument "pods"`},
		{"-all" + at, 2, "", "-all"},
		{"-o yaml" + at, 2, "", "table or json"},
		{"-api unix:" + filepath.Join(t.TempDir(), "none"), 1, "", "is it running"},
		{"-source none" + at, 1, "", `router resync: there is no source "none"`},
		{at, 0, "source pods: 3 objects put through, 2 of them to a route\n", "source pods is not complete yet: the first list is not complete"},
		{"-route r" + at, 0, "source pods: 3 objects put through, 2 of them to route r\n", ""},
		{"-route r -dry-run" + at, 0, "source pods: 3 objects would be put through, 2 of them would go to route r\n", ""},
		{"-dry-run" + at, 2, "", "-dry-run is for -route ROUTE"},
		{"-route level -dry-run" + at, 0, "route level has a condition: it would repeat notifications\n", ""},
		{"-route level" + at, 1, "", "would repeat 2 notifications. Go on? [y/N] router resync: nothing was done: answer y, or give -yes\n"},
		{"-route level -yes" + at, 0, "2 of them to route level\n", ""},
		{"-o json" + at, 0, `"taken": 2`, ""},
		{"-relist" + at, 1, "source pods: 3 objects listed, 1 delta of what differs\nsource nodes: not listed\n", "1 of 2 sources were not put through to the end"},
	} {
		checkRun(t, append([]string{"resync"}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
	}
	if repeated != 1 {
		t.Errorf("notifications were repeated %d times, want once, with -yes", repeated)
	}
	for answer, want := range map[string]bool{"y\n": true, "YES": true, "": false, "n\n": false, "\n": false} {
		r := &cli.Remote{Client: api.NewClient(addr), Streams: cli.Streams{In: strings.NewReader(answer), Err: io.Discard}}
		if err := confirmRepeats(t.Context(), r, api.Resync{Route: "level"}); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
}
