package kubehttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/kubehttp"
)

// TestSend shows the requests of each method, and that the status of an answer is no error.
func TestSend(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // an empty text fails the test
		got = r.Method + " " + r.URL.String() + " " + r.Header.Get("Content-Type") + " " + string(text)
		w.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	for method, want := range map[string]string{
		http.MethodPost:  `POST /x?a=b application/json {"n":1}`,
		http.MethodPatch: `PATCH /x?a=b application/merge-patch+json {"n":1}`,
	} {
		status, err := kubehttp.Send(t.Context(), server.Client(), method, server.URL+"/x?a=b", map[string]int{"n": 1})
		if err != nil || status != http.StatusConflict || got != want {
			t.Errorf("%s: got %q, %d, %v", method, got, status, err)
		}
	}
	server.Close()
	if _, err := kubehttp.Send(t.Context(), server.Client(), http.MethodPost, server.URL, nil); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a closed server: %v", err)
	}
}
