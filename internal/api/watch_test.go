package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

// watching is a Watch that has the same two events for all, and then ends as the name of the query
// says.
func watching(asked chan<- api.Query, ended chan<- error) api.Watch {
	return func(ctx context.Context, q api.Query, show func(api.WatchEvent) error) error {
		switch q.Source {
		case "none":
			return &api.QueryError{Message: "there is no source none", Unknown: true}
		case "wrong":
			return &api.QueryError{Message: "filter: 1:1: wrong"}
		case "full":
			return errors.New("there are 4 streams of objects already")
		}
		asked <- q
		err := errors.Join(
			show(api.WatchEvent{Type: api.WatchAdded, Object: json.RawMessage(`{"a":"<"}`)}),
			show(api.WatchEvent{Type: api.WatchListed, ResourceVersion: "7", Reason: "relist", Absent: 2}),
		)
		if q.Name == "cut" {
			return errors.New("the stream was cut off")
		}
		<-ctx.Done()
		ended <- err
		return ctx.Err()
	}
}

// TestWatch shows that events arrive one by one, that an error before the first of them is an
// answer, and a later one a line, and that a stream ends with its reader and with the server.
func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	asked, ended := make(chan api.Query, 1), make(chan error, 1)
	server := api.NewControl(api.ControlConfig{Addr: "unix:" + path, Log: slog.New(slog.DiscardHandler), Watch: watching(asked, ended)})
	must.Succeed(t, server.Start(t.Context()))
	client := api.NewClient("unix:" + path)
	for _, c := range []struct {
		source string
		status int
		want   string
	}{{"none", 404, "there is no source none"}, {"wrong", 400, "filter: 1:1: wrong"}, {"full", 503, "there are 4 streams of objects already"}} {
		if err := client.Watch(t.Context(), api.Query{Source: c.source}, nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.source, err)
		}
		if status, text := read(t, path, c.source+"?watch=true"); status != c.status || !strings.HasPrefix(text, `{"error":"`+c.want) {
			t.Errorf("%s: %d %s", c.source, status, text)
		}
	}
	var types []string
	want := api.Query{Source: "pods", Index: "by Node", Value: "a&b=ü", Namespace: "ns", Name: "n", Labels: "app in (a, b),!c", Filter: `object.x == "+&;"`}
	enough := errors.New("enough")
	err := client.Watch(t.Context(), want, func(e api.WatchEvent) error {
		if types = append(types, e.Type+string(e.Object)); e.Type == api.WatchListed {
			if e.ResourceVersion != "7" || e.Synced || e.Reason != "relist" || e.Absent != 2 {
				t.Errorf("got %+v", e)
			}
			return enough
		}
		return nil
	})
	q := <-asked
	if q.Limit = 0; !errors.Is(err, enough) || q != want || strings.Join(types, " ") != `ADDED{"a":"\u003c"} LISTED` {
		t.Errorf("%v, %q, asked %+v", err, types, q)
	}
	must.Report(t, <-ended)

	err = client.Watch(t.Context(), api.Query{Source: "pods", Name: "cut"}, func(api.WatchEvent) error { return nil })
	if <-asked; err == nil || err.Error() != "the stream was cut off" {
		t.Error(err)
	}
	status, text := read(t, path, "pods/indexes/byNode?value=&watch=1&name=cut")
	<-asked
	if lines := strings.Split(text, "\n"); status != 200 || len(lines) != 4 || lines[2] != `{"type":"ERROR","message":"the stream was cut off"}` {
		t.Errorf("%d %s", status, text)
	}
	err = client.Watch(t.Context(), api.Query{Source: "pods"}, func(e api.WatchEvent) error {
		if e.Type == api.WatchListed {
			go func() { _ = server.Close(context.WithoutCancel(t.Context())) }()
		}
		return nil
	})
	must.Fail(t, err, "the router closed the stream: is it still running?")
	if err := server.Close(context.WithoutCancel(t.Context())); err != nil || <-ended != nil {
		t.Error(err)
	}
}

// read reads the whole answer to a request for a source.
func read(t *testing.T, path, request string) (status int, text string) {
	t.Helper()
	response, err := unixClient(path).Get("http://localhost/api/v1/sources/" + request)
	must.Succeed(t, err)
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(all)
}

// TestWatchIsInterrupted shows that a stream ends with the context of its reader.
func TestWatchIsInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	asked, ended := make(chan api.Query, 1), make(chan error, 1)
	server := api.NewControl(api.ControlConfig{Addr: "unix:" + path, Log: slog.New(slog.DiscardHandler), Watch: watching(asked, ended)})
	must.Succeed(t, server.Start(t.Context()))
	defer func() { must.Report(t, server.Close(context.WithoutCancel(t.Context()))) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := api.NewClient("unix:"+path).Watch(ctx, api.Query{Source: "pods"}, func(e api.WatchEvent) error {
		if e.Type == api.WatchListed {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must.Report(t, <-ended)
}
