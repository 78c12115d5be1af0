package commands

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/cli"
)

// follower prints the decisions of a route as they come. If the router ends, it waits for the next
// start, and goes on behind the last decision that it has printed.
type follower struct {
	*cli.Remote

	query  api.RunsQuery
	listed bool
	last   time.Time           // of the last decision
	seen   map[api.RunKey]bool // the decisions of that time
}

// mostRuns is the largest number of decisions in an answer.
const mostRuns = 1000

func (f *follower) run(ctx context.Context) error {
	if err := f.Connect(ctx); err != nil {
		return err
	}
	retry := backoff.Series{Policy: backoff.Policy{Min: 100 * time.Millisecond, Max: 5 * time.Second}}
	for told := ""; ; {
		var broken error // the output
		err := f.Client.FollowRuns(ctx, f.query, func(e api.RunEvent) error {
			if e.Listed != nil {
				if told != "" {
					cli.Printf(f.Err, "the router answers again\n")
				}
				told = ""
				retry.Reset()
			}
			broken = f.show(&e)
			return broken
		})
		if ctx.Err() != nil {
			return nil
		}
		if broken != nil {
			return broken
		}
		answer, refused := errors.AsType[*api.AnswerError](err)
		if !f.listed || refused && answer.Status < http.StatusInternalServerError {
			return err
		}
		if told == "" {
			cli.Printf(f.Err, "%s; waiting for it\n", err)
		}
		told = err.Error()
		f.query.Since, f.query.Limit = f.last, mostRuns
		if retry.Wait(ctx, 0) != nil {
			return nil
		}
	}
}

// show prints an event.
func (f *follower) show(e *api.RunEvent) error {
	if e.Missed > 0 {
		cli.Printf(f.Err, "%s came too fast to be shown: router runs has them\n", cli.Count(int(e.Missed), "decision"))
	}
	if e.Listed != nil {
		f.listed = true
		warnGaps(f.Remote, *e.Listed)
		if f.last.IsZero() { // until the first decision, those from now on are missing ones
			f.last = f.query.Since
		}
	}
	if e.Run == nil || f.seen[e.Run.Key()] {
		return nil
	}
	if e.Run.Time.After(f.last) {
		f.last = e.Run.Time
		clear(f.seen)
	}
	f.seen[e.Run.Key()] = true
	if f.Output == "json" {
		return json.NewEncoder(f.Out).Encode(e.Run)
	}
	cli.Printf(f.Out, "%s  %s  %s  %s  %s\n", e.Run.Time.Local().Format(stamp), e.Run.Op, e.Run.Source,
		strings.TrimPrefix(e.Run.Namespace+"/"+e.Run.Name, "/"), summary(&e.Run.Decision, e.Run.Time, e.Run.Op, false))
	return nil
}
