package router

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/election"
	"github.com/deltarouter/deltarouter/internal/fleet/replica"
	"github.com/deltarouter/deltarouter/internal/fleet/roster"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

// reader returns a context of the requests of a user without rights on any object.
func reader(t *testing.T) context.Context {
	t.Helper()
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{
				Authenticated: true, User: authenticationv1.UserInfo{Username: "ann"},
			}})
			return
		}
		_ = json.NewEncoder(w).Encode(authorizationv1.SubjectAccessReview{})
	}))
	t.Cleanup(cluster.Close)
	t.Cleanup(cluster.Client().CloseIdleConnections)
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Authorization", "Bearer x")
	caller, err := access.New(access.Config{URL: cluster.URL, Client: cluster.Client(), Now: time.Now}).Identify(request)
	must.Succeed(t, err)
	return access.With(t.Context(), caller)
}

const standing = `version: 1
state: {dir: %q}
listen: {access: kubernetes, tls: {cert: a, key: b}}
fleet: {name: test, replicas: 1, nats: {servers: [%q]}}
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
routes:
  - {name: near, from: pods, to: out}
  - {name: far, from: pods, to: out, workers: {partitions: 3}}
`

// TestStandbyStatus: a standby with listen.access shows its routes to all readers, with the numbers
// of the state file and of the workers, as the leader does.
func TestStandbyStatus(t *testing.T) {
	nats, log := natstest.Start(t, natstest.Config{}), slog.New(slog.DiscardHandler)
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, standing, t.TempDir(), nats.URLs()[0]), 0o600))
	cfg, _ := config.Load(file, config.Policy{}) // the files of listen.tls do not matter
	conn, err := fleet.Connect(t.Context(), cfg.Fleet, "one", log)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, conn.Close()) })
	must.Succeed(t, conn.Ready(t.Context()))
	must.Succeed(t, conn.Ensure(t.Context()))
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, db.Close()) })
	letters, err := db.Letters(checkpoint.LettersConfig{})
	must.Succeed(t, err)
	o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"n","uid":"u","resourceVersion":"1"}}`)
	must.Succeed(t, err)
	letter := checkpoint.Letter{Time: time.Now(), Route: "near", Delta: &event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now()}}
	must.Succeed(t, letters.Add(t.Context(), []checkpoint.Letter{letter, letter}))

	m := &member{log: log, name: "one", conn: conn, elector: election.New(election.Config{Holder: "one", Duration: time.Minute, Log: log}), roster: roster.New(conn, "one", log)}
	m.elector.Fail(fmt.Errorf("the servers are too old"))
	s := &standby{member: m, cfg: cfg, db: db, metrics: metrics.New()}
	s.follower = replica.NewFollower(replica.FollowerConfig{Conn: conn, DB: db, Path: path, Log: log})
	s.file = newStandbyFile(s, newWatchedFile(file))
	for name, ctx := range map[string]context.Context{"everybody": t.Context(), "a reader without rights": reader(t)} {
		shown := s.status(ctx)
		if len(shown.Routes) != 2 {
			t.Fatalf("%s: %+v", name, shown)
		}
		near, far := shown.Routes[0], shown.Routes[1]
		if near.Name != "near" || near.DeadLetters != 2 || near.Workers != nil || far.DeadLetters != 0 || far.Workers.Partitions != 3 || far.Workers.Waiting == nil || *far.Workers.Waiting != 0 {
			t.Errorf("%s: %+v, %+v", name, near, far)
		}
		if c := shown.Checks[0]; c.OK || !strings.HasSuffix(c.Message, "this member could not lead: the servers are too old") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
