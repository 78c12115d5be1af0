package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// shelf has the objects ns/0 to ns/4, two on a page, and records its queries.
type shelf struct{ asked []api.Query }

func (*shelf) Sources(context.Context) ([]api.SourceInfo, error) {
	return []api.SourceInfo{{Name: "pods", Objects: 5}}, nil
}

func (s *shelf) Query(_ context.Context, q api.Query) (answer api.Answer, err error) {
	s.asked = append(s.asked, q)
	switch {
	case q.Source == "broken":
		return answer, errors.New("the disk is gone")
	case q.Source != "pods":
		return answer, &api.QueryError{Message: "there is no source " + q.Source, Unknown: true}
	case q.Filter == "wrong":
		return answer, &api.QueryError{Message: "filter: 1:1: wrong"}
	}
	answer = api.Answer{Source: "pods", ResourceVersion: "7"}
	next := 0
	if q.After != (event.Key{}) {
		_, _ = fmt.Sscanf(q.After.Name, "%d", &next)
		next++
	}
	for ; next < 5 && len(answer.Items) < 2; next++ {
		answer.Items = append(answer.Items, json.RawMessage(fmt.Sprint(next)))
	}
	if next < 5 {
		answer.Continue = api.Token(event.Key{Namespace: "ns", Name: fmt.Sprint(next - 1)})
	}
	return answer, nil
}

func serveCache(t *testing.T, s *shelf) string {
	t.Helper()
	addr := "unix:" + filepath.Join(t.TempDir(), "api.sock")
	server := api.NewControl(api.ControlConfig{Addr: addr, Cache: s, Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, server.Start(t.Context()))
	t.Cleanup(func() { must.Report(t, server.Close(context.WithoutCancel(t.Context()))) })
	return addr
}

func TestQuery(t *testing.T) {
	s := &shelf{}
	c := api.NewClient(serveCache(t, s))
	sources, err := c.Sources(t.Context())
	if err != nil || len(sources) != 1 || sources[0].Objects != 5 {
		t.Error(sources, err)
	}
	q := api.Query{
		Source: "pods", Index: "by Node", Value: "a&b=ü", Namespace: "ns", Name: "n", Labels: "app in (a, b),!c", Filter: `object.x == "+&;"`, Limit: 2,
	}
	var items []string
	for token := ""; ; {
		answer, err := c.Query(t.Context(), q, token)
		if err != nil || answer.ResourceVersion != "7" {
			t.Fatal(answer, err)
		}
		for _, item := range answer.Items {
			items = append(items, string(item))
		}
		if token = answer.Continue; token == "" {
			break
		}
	}
	if got := strings.Join(items, " "); got != "0 1 2 3 4" || len(s.asked) != 3 {
		t.Errorf("got %s in %d pages", got, len(s.asked))
	}
	if s.asked[0] != q {
		t.Errorf("asked %+v, want %+v", s.asked[0], q)
	}
	for source, want := range map[string]string{"nope": "there is no source nope", "broken": "the disk is gone"} {
		if _, err := c.Query(t.Context(), api.Query{Source: source}, ""); err == nil || err.Error() != want {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestQueryRefuses shows that a malformed query is refused with one JSON error that names the
// mistake.
func TestQueryRefuses(t *testing.T) {
	s := &shelf{}
	addr := serveCache(t, s)
	client := unixClient(strings.TrimPrefix(addr, "unix:"))
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"", 200, `{"sources":[{"name":"pods"`},
		{"?x=1", 400, "takes no parameters"},
		{"/pods", 200, `"items":[0,1]`},
		{"/nope", 404, "there is no source nope"},
		{"/broken", 500, "the disk is gone"},
		{"/pods?filter=wrong", 400, "filter: 1:1: wrong"},
		{"/pods?filtre=x", 400, `unknown parameter \"filtre\"; there are namespace, name, labels, filter, limit, continue`},
		{"/pods?value=x", 400, "unknown parameter"},
		{"/pods?name=a&name=b", 400, "parameter name occurs twice"},
		{"/pods?a;b", 400, "the parameters: invalid semicolon"},
		{"/pods?name=%zz", 400, "the parameters: invalid URL escape"},
		{"/pods?limit=0", 400, "no number from 1 to 1000"},
		{"/pods?limit=1001", 400, "no number from 1 to 1000"},
		{"/pods?limit=-1", 400, "no number from 1 to 1000"},
		{"/pods?continue=x", 400, "continue: not a token"},
		{"/pods?continue=" + api.Token(event.Key{Name: "3"}), 200, `"items":[4]`},
		{"/pods?watch=no", 400, `watch: \"no\" is neither true nor false`},
		{"/pods?watch=true&limit=5", 400, "watch=true has no pages: leave limit and continue out"},
		{"/pods?watch=true&continue=" + api.Token(event.Key{Name: "3"}), 400, "watch=true has no pages"},
		{"/pods?watch=false&limit=5", 200, `"items":[0,1]`},
		{"/pods?watch=true", 503, "this router cannot watch objects"},
		{"/pods/indexes/byNode?watch=true", 400, "value is missing"},
		{"/pods/indexes/byNode", 400, "value is missing"},
		{"/pods/indexes/byNode?value=", 200, `"items":[0,1]`},
		{"/pods/indexes", 404, ""},
	} {
		response, err := client.Get("http://localhost/api/v1/sources" + c.path)
		must.Succeed(t, err)
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.status || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %d %s %v, want %d %s", c.path, response.StatusCode, text, err, c.status, c.want)
		}
		if c.status != 200 && c.want != "" && !strings.HasPrefix(string(text), `{"error":"`) {
			t.Errorf("%s: no error in JSON: %s", c.path, text)
		}
	}
}

func unixClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(path)}}
}

func dialer(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
}
