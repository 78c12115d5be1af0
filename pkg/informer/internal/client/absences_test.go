package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestAbsences: 24 sources of resources that do not exist share two requests: the list of groups,
// and the resources of the only group that exists.
func TestAbsences(t *testing.T) {
	var mu sync.Mutex
	requests := make(map[string]int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests[r.URL.Path]++
		switch r.URL.Path {
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","groups":[{"name":"there.io","versions":[{"groupVersion":"there.io/v1","version":"v1"}]}]}`)
		case "/apis/there.io/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","resources":[{"name":"things","namespaced":true,"kind":"Thing"}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	c, err := For(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	defer c.Close()
	absences := NewAbsences(c)
	discover := func(resource, group string, maxAge time.Duration) (Found, error) {
		return absences.Discover(t.Context(), schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, maxAge)
	}
	var sources sync.WaitGroup
	for i := range 24 {
		sources.Go(func() {
			group := []string{"there.io", "absent.io", fmt.Sprint("absent-", i, ".io")}[i%3]
			if _, err := discover(fmt.Sprint("others-", i), group, time.Hour); !errors.Is(err, ErrAbsent) {
				t.Errorf("%s: %v", group, err)
			}
		})
	}
	sources.Wait()
	if len(requests) != 2 || requests["/apis"] != 1 || requests["/apis/there.io/v1"] != 1 {
		t.Errorf("requested %v", requests)
	}
	if found, err := discover("things", "there.io", time.Hour); err != nil || found.Kind != "Thing" {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := discover("things", "absent.io", 0); !errors.Is(err, ErrAbsent) || requests["/apis"] != 2 {
		t.Errorf("%v; requested %v: an answer was too old", err, requests)
	}
}

// TestSpare: a probe finds out whether other requests need the limit of requests.
func TestSpare(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{}`)
	}))
	defer server.Close()
	for _, test := range []struct {
		qps    float32
		burst  int
		wants  bool
		before int
	}{{qps: 0, wants: true, before: 9}, {qps: 1e-6, burst: 4, wants: true, before: 1}, {qps: 1e-6, burst: 4, wants: false, before: 3}, {qps: 1e-6, burst: 1, wants: false, before: 1}} {
		c, err := For(&rest.Config{Host: server.URL, QPS: test.qps, Burst: test.burst})
		must.Succeed(t, err)
		for range test.before {
			var into any
			must.Succeed(t, c.GetJSON(t.Context(), "apis", &into))
		}
		if got := c.Spare(); got != test.wants {
			t.Errorf("%v: %v", test, got)
		}
		c.Close()
	}
}
