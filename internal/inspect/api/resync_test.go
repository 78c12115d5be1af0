package api_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/inspect/api"
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
