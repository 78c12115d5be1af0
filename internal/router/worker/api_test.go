package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/fleet/roster"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// as returns a context of the requests of a user who may do everything, or nothing.
func as(t *testing.T, everything bool) context.Context {
	t.Helper()
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{
				Authenticated: true, User: authenticationv1.UserInfo{Username: "ann"},
			}})
			return
		}
		_ = json.NewEncoder(w).Encode(authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: everything}})
	}))
	t.Cleanup(cluster.Close)
	t.Cleanup(cluster.Client().CloseIdleConnections)
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Authorization", "Bearer x")
	caller, err := access.New(access.Config{URL: cluster.URL, Client: cluster.Client(), Now: time.Now}).Identify(request)
	must.Succeed(t, err)
	return access.With(t.Context(), caller)
}

// TestStatus: all readers see the routes of a worker with their figures. The texts of sinks and
// handlers are for those who may list the objects of the routes.
func TestStatus(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "")
	f.receiver.refuse = func(event.Event) error { return plugins.Pause(errors.New("default/a is refused")) }
	f.publish(f.sink("first"), 1, "a")
	opts := f.options()
	opts.DrainTimeout = time.Millisecond // the delta cannot be delivered
	w, err := open(t.Context(), opts, f.plan)
	must.Succeed(t, err)
	w.roster = roster.New(f.conn, w.id, w.log)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.run(ctx)
		ended <- err
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for everything, text := range map[bool]string{true: "default/a is refused", false: "(not shown: you may not list all objects that the text may name)"} {
		reader := as(t, everything)
		for { // on a busy machine the partition may be lost, and taken again
			s := w.status(reader)
			shown := fmt.Sprintf("%+v", s)
			if len(s.Routes) != 1 || s.Routes[0].Name != "first" || !everything && strings.Contains(shown, "default/a") {
				t.Fatalf("everything %v: %s", everything, shown)
			}
			if r := s.Routes[0]; r.Pending == 1 && r.Workers.Partitions == 1 && strings.Contains(r.Paused, text) && strings.Count(shown, text) > 1 {
				break
			}
			select {
			case <-tick.C:
			case <-late:
				t.Fatalf("everything %v: %s", everything, shown)
			}
		}
	}
	end()
	must.Succeed(t, <-ended)
	must.Succeed(t, w.close(t.Context()))
}
