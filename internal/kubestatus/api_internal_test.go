package kubestatus

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestCreate shows the request, and the errors of answers; test/e2e shows that an API server
// accepts it.
func TestCreate(t *testing.T) {
	status := http.StatusCreated
	var got corev1.Event
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/prefix/api/v1/namespaces/ns/events" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	at := time.Unix(1e9, 0).UTC()
	reporter := NewPodEvents(Pod{"ns", "pod", "uid"}, &plugins.API{URL: server.URL + "/prefix", Client: client}, func() time.Time { return at })

	if err := reporter.Report(t.Context(), []Condition{state("a")}); err != nil {
		t.Fatal(err)
	}
	about := got.InvolvedObject
	if about.Kind != "Pod" || about.Namespace != "ns" || about.Name != "pod" || about.UID != "uid" || got.Type != "Warning" ||
		got.Reason != RoutePaused || got.Message != "a" || got.GenerateName != "pod." || !got.LastTimestamp.Equal(&got.FirstTimestamp) {
		t.Errorf("got %+v", got)
	}

	status = http.StatusForbidden
	if err := reporter.Report(t.Context(), []Condition{state("b")}); !errors.Is(err, ErrForbidden) {
		t.Errorf("got %v, want ErrForbidden", err)
	}
	status = http.StatusInternalServerError
	if err := reporter.Report(t.Context(), []Condition{state("b")}); err == nil || !strings.Contains(err.Error(), "answers 500") {
		t.Errorf("got %v, want the status", err)
	}
	server.Close()
	if err := reporter.Report(t.Context(), []Condition{state("b")}); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v, want that it does not answer", err)
	}
}
