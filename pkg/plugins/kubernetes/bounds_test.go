package kubernetes

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestObjectOfSeveralVersions: maxPerObject counts an object once, regardless of the version of its
// resource in a write, and counts objects separately.
func TestObjectOfSeveralVersions(t *testing.T) {
	l := newLimits(rate{}, rate{}, rate{1, time.Minute}, nil)
	at := time.Unix(0, 0)
	for i, c := range []struct {
		target target
		ok     bool
	}{
		{target{group: "g", version: "v1", resource: "things", namespace: "n", name: "a"}, true},
		{target{group: "g", version: "v2", resource: "things", namespace: "n", name: "a"}, false},
		{target{group: "g", version: "v1", resource: "things", namespace: "n", name: "a", uid: "u"}, false},
		{target{group: "g", version: "v1", resource: "things", namespace: "m", name: "a"}, true},
		{target{group: "g", version: "v1", resource: "things", name: "a"}, true},
		{target{group: "g", version: "v1", resource: "others", namespace: "n", name: "a"}, true},
		{target{version: "v1", resource: "things", namespace: "n", name: "a"}, true},
	} {
		if _, err := l.take(at, "r", strconv.Itoa(i), &operation{verb: verbMerge, target: c.target}); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.target, err)
		}
	}
}

// TestRetryAfter: the delay that an API server requests is limited.
func TestRetryAfter(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{0: 0, 7: 7 * time.Second, -5: 0, math.MaxInt32: 24 * time.Hour} {
		if got := retryAfter(&metav1.Status{Details: &metav1.StatusDetails{RetryAfterSeconds: seconds}}); got != want {
			t.Errorf("%d: %v, want %v", seconds, got, want)
		}
	}
}

// TestNoSuchVersion: events with nonexistent versions do not accumulate memory.
func TestNoSuchVersion(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/apps/v1":
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","resources":[{"name":"deployments","kind":"Deployment","namespaced":true},{"name":"deployments/scale","kind":"Scale"}]}`)
		case "/apis/apps/empty":
			_, _ = io.WriteString(w, `{"kind":"APIResourceList"}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	a, err := newAPI(&sinkConfig{Timeout: time.Minute}, plugins.SinkEnv{API: &plugins.API{URL: s.URL, Client: s.Client()}})
	must.Succeed(t, err)
	for _, version := range []string{"v0", "v2", "empty", "v1"} {
		found, err := a.find(t.Context(), &target{group: "apps", version: version, kind: "Deployment"})
		if version == "v1" != (err == nil && found.Name == "deployments") || err != nil && plugins.ClassOf(err) != plugins.Rejected {
			t.Errorf("%s: %v %v", version, found.Name, err)
		}
	}
	if _, err := a.find(t.Context(), &target{group: "apps", version: "v1", kind: "Scale"}); plugins.ClassOf(err) != plugins.Rejected {
		t.Errorf("a subresource: %v", err)
	}
	if len(a.kinds) != 1 {
		t.Errorf("it keeps %d answers", len(a.kinds))
	}
}
