package api_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestTap shows that lines arrive one by one, and that a tap ends with its reader and with the
// server.
func TestTap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	asked, ended := make(chan api.TapQuery, 1), make(chan error, 1)
	server := api.NewControl(api.ControlConfig{Addr: "unix:" + path, Log: slog.New(slog.DiscardHandler), Tap: func(ctx context.Context, q api.TapQuery, show func(api.Tapped) error) error {
		switch q.Route {
		case "none":
			return &api.QueryError{Message: "there is no route none", Unknown: true}
		case "full":
			return errors.New("there are 4 taps already")
		}
		asked <- q
		err := errors.Join(show(api.Tapped{}), show(api.Tapped{Key: "a", Missed: 3}), show(api.Tapped{Key: "b"}))
		<-ctx.Done()
		ended <- err
		return ctx.Err()
	}})
	must.Succeed(t, server.Start(t.Context()))
	client := api.NewClient("unix:" + path)
	for route, want := range map[string]string{"none": "there is no route none", "full": "there are 4 taps already"} {
		if err := client.Tap(t.Context(), api.TapQuery{Route: route}, nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v", route, err)
		}
	}
	for _, parameters := range []string{"rejected=perhaps", "rote=a", "route=a&route=b", "a;b"} {
		response, err := unixClient(path).Get("http://localhost/api/v1/tap?" + parameters)
		must.Succeed(t, err)
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != 400 || err != nil || !strings.HasPrefix(string(text), `{"error":"`) {
			t.Errorf("%s: %d %s %v", parameters, response.StatusCode, text, err)
		}
	}
	enough, keys := errors.New("enough"), ""
	want := api.TapQuery{Route: "a&b", Rejected: true}
	err := client.Tap(t.Context(), want, func(l api.Tapped) error {
		if keys += l.Key; l.Key == "b" {
			return enough
		}
		return nil
	})
	if q := <-asked; !errors.Is(err, enough) || keys != "ab" || q != want {
		t.Errorf("%v, %q, %+v", err, keys, q)
	}
	must.Report(t, <-ended)
	err = client.Tap(t.Context(), api.TapQuery{}, func(l api.Tapped) error {
		if l.Key == "b" {
			go func() { _ = server.Close(context.WithoutCancel(t.Context())) }()
		}
		return nil
	})
	must.Fail(t, err, "the router closed the tap")
	if err := server.Close(context.WithoutCancel(t.Context())); err != nil || <-ended != nil {
		t.Error(err)
	}
}
