package kubehttp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestNoRedirects: no redirect is followed, to whatever host, and the reason names where it leads.
func TestNoRedirects(t *testing.T) {
	// Guarantee: redirect-leaks
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s got a request, with Authorization %q", r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		status         int
		location, want string
	}{
		"another port":       {http.StatusFound, elsewhere.URL + "/login?state=secret", elsewhere.URL + "/login,"},
		"with the method":    {http.StatusTemporaryRedirect, elsewhere.URL, elsewhere.URL + ","},
		"for ever":           {http.StatusPermanentRedirect, "//" + strings.TrimPrefix(elsewhere.URL, "http://"), elsewhere.URL + ","},
		"the same host":      {http.StatusMovedPermanently, "/login", "/login,"},
		"with a password":    {http.StatusSeeOther, "https://user:secret@login.example/", "https://login.example/,"},
		"an invalid address": {http.StatusFound, "http://[", "an invalid address,"},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests++; r.Header.Get("Authorization") != "Bearer token" {
					t.Errorf("headers %v", r.Header)
				}
				w.Header().Set("Location", c.location)
				w.WriteHeader(c.status)
			}))
			defer server.Close()
			transport, err := TransportFor(&rest.Config{Host: server.URL, BearerToken: "token"})
			must.Succeed(t, err)
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api", http.NoBody)
				must.Succeed(t, err)
				response, err := (&http.Client{Transport: transport}).Do(request)
				if err == nil {
					_ = response.Body.Close()
				}
				var redirect *RedirectError
				if !errors.As(err, &redirect) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s: %v", method, err)
				}
			}
			if requests != 2 {
				t.Errorf("%d requests", requests)
			}
		})
	}
}

// TestNotModified: an answer without a target is no redirect.
func TestNotModified(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }))
	defer server.Close()
	transport, err := TransportFor(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	response, err := (&http.Client{Transport: transport}).Get(server.URL)
	must.Succeed(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusNotModified {
		t.Error(response.Status)
	}
}
