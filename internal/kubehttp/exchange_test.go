package kubehttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/deltarouter/deltarouter/internal/kubehttp"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestExchange shows the answers of an API server, and of something else at its address.
func TestExchange(t *testing.T) {
	answer := map[string]struct {
		status int
		text   string
	}{
		"fine": {http.StatusOK, `{"name":"n"}`}, "refused": {http.StatusForbidden, `{"message":"not you"}`},
		"proxy": {http.StatusBadGateway, "<html>"}, "nonsense": {http.StatusOK, "<html>"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(answer[r.URL.Path[1:]].status)
		_, _ = w.Write([]byte(answer[r.URL.Path[1:]].text)) // an error fails the test at the reader
	}))
	defer server.Close()
	for name, c := range map[string]struct{ message, name, err string }{
		"fine": {name: "n"}, "refused": {message: "not you"}, "proxy": {}, "nonsense": {err: "answers no JSON"},
	} {
		var got struct{ Name string }
		status, message, err := kubehttp.Exchange(t.Context(), server.Client(), http.MethodGet, server.URL+"/"+name, nil, &got)
		if status != answer[name].status || message != c.message || got.Name != c.name {
			t.Errorf("%s: %d, message %q, name %q", name, status, message, got.Name)
		}
		if c.err != "" {
			must.Fail(t, err, c.err)
		} else {
			must.Report(t, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := kubehttp.Exchange(ctx, server.Client(), http.MethodGet, server.URL, nil, nil)
	must.Fail(t, err, "the API server does not answer")
}
