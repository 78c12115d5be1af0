package api_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestResync shows that the request, the result and the error pass through the API, and that a
// resync ends when its client disconnects.
func TestResync(t *testing.T) {
	begun := make(chan context.Context, 1)
	var asked api.Resync
	s := api.NewControl(api.ControlConfig{
		Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Resync: func(ctx context.Context, ask api.Resync) (done api.Resynced, err error) {
			if ask.Source == "slow" {
				begun <- ctx
				<-ctx.Done()
				return done, ctx.Err()
			}
			if asked = ask; ask.Route == "none" {
				return done, errors.New("no such route")
			}
			return api.Resynced{Sources: []api.ResyncedSource{{Name: "s", Objects: 3, Taken: 1}}}, nil
		},
	})
	must.Succeed(t, s.Start(t.Context()))
	defer func() {
		http.DefaultClient.CloseIdleConnections()
		must.Report(t, s.Close(context.WithoutCancel(t.Context())))
	}()
	c := api.NewClient(s.Addr())
	ask := api.Resync{Source: "s", Route: "r", Relist: true}
	if done, err := c.Resync(t.Context(), ask); err != nil || asked != ask || len(done.Sources) != 1 || done.Sources[0].Objects != 3 {
		t.Errorf("asked %+v, got %+v, %v", asked, done, err)
	}
	if _, err := c.Resync(t.Context(), api.Resync{Route: "none"}); err == nil || err.Error() != "no such route" {
		t.Errorf("error is %v", err)
	}
	for body, code := range map[string]int{`{}`: 200, `{"all":true}`: 400, ``: 400, `{"route":"none"}`: 422} {
		response, err := http.Post("http://"+s.Addr()+"/api/v1/resync", "application/json", strings.NewReader(body))
		must.Succeed(t, err)
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.Body.Close() != nil || response.StatusCode != code {
			t.Errorf("%s: %d, want %d", body, response.StatusCode, code)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = c.Resync(ctx, api.Resync{Source: "slow"}) }()
	there := <-begun
	cancel()
	<-there.Done()
}

// pauser is both methods of an [api.Pauser].
type pauser func(route string, until time.Time) error

func (p pauser) Pause(route string, until time.Time) error { return p(route, until) }
func (p pauser) Resume(route string) error                 { return p(route, time.Time{}) }

// TestPause shows that the request passes through the API, and which times are refused.
func TestPause(t *testing.T) {
	var until time.Time
	s := api.NewControl(api.ControlConfig{
		Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Pauser: pauser(func(route string, end time.Time) error {
			if until = end; route != "a/b" {
				return errors.New("no such route")
			}
			return nil
		}),
	})
	must.Succeed(t, s.Start(t.Context()))
	defer func() { must.Report(t, s.Close(context.WithoutCancel(t.Context()))) }()
	c := api.NewClient(s.Addr())
	if done, err := c.Pause(t.Context(), "a/b", 0); err != nil || done.Until != nil || !until.IsZero() {
		t.Errorf("%+v until %s, %v", done, until, err)
	}
	if done, err := c.Pause(t.Context(), "a/b", 2*time.Hour); err != nil || !done.Until.Equal(until) || time.Until(until).Round(time.Hour) != 2*time.Hour {
		t.Errorf("%+v until %s, %v", done, until, err)
	}
	for _, length := range []time.Duration{time.Millisecond, 10000 * time.Hour} {
		_, err := c.Pause(t.Context(), "a/b", length)
		must.Fail(t, err, "is no time from 1s to 8784h")
	}
	_, err := c.Pause(t.Context(), "x", time.Hour)
	must.Fail(t, err, "no such route")
	must.Succeed(t, c.Resume(t.Context(), "a/b"))
	must.Fail(t, c.Resume(t.Context(), "x"), "no such route")
}
