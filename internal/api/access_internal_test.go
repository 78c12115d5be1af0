package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/test/must"
)

// cluster is an API server whose only user is ann, with the token ann.
type cluster struct {
	mu     sync.Mutex
	rights map[string]bool // by text
}

func (c *cluster) set(right string, has bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rights[right] = has
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review) // then nothing is authenticated
		if review.Status.Authenticated = review.Spec.Token == "ann"; review.Status.Authenticated {
			review.Status.User.Username = "ann"
		}
		_ = json.NewEncoder(w).Encode(review) // the client then fails
		return
	}
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review) // then nothing is allowed
	var right string
	if a := review.Spec.ResourceAttributes; a != nil {
		right = a.Verb + " " + a.Resource
	} else if a := review.Spec.NonResourceAttributes; a != nil {
		right = a.Verb + " " + a.Path
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	review.Status.Allowed = c.rights[right]
	_ = json.NewEncoder(w).Encode(review) // the client then fails
}

// guardedServer serves the API of cfg with access control.
func guardedServer(t *testing.T, cfg ControlConfig) (c *cluster, url string) {
	t.Helper()
	c = &cluster{rights: make(map[string]bool)}
	kubernetes := httptest.NewServer(c)
	t.Cleanup(kubernetes.Close)
	t.Cleanup(kubernetes.Client().CloseIdleConnections)
	cfg.Addr = "127.0.0.1:0"
	cfg.Access = access.New(access.Config{URL: kubernetes.URL, Client: kubernetes.Client(), Now: time.Now}).Identify
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := NewControl(cfg)
	must.Succeed(t, s.Start(t.Context()))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		must.Report(t, s.Close(context.WithoutCancel(t.Context())))
	})
	return c, "http://" + s.Addr()
}

func ask(t *testing.T, method, url, token, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must.Succeed(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Host = "deltarouter.ops.svc" // any name
	response, err := http.DefaultClient.Do(r)
	must.Succeed(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(answer)
}

// secretive answers each request for objects as a router does: it asks for the right to list
// secrets first.
type secretive struct{ t *testing.T }

var errShown = errors.New("shown")

// refusing is a [Pauser].
type refusing struct{}

func (refusing) Pause(string, time.Time) error { return errShown }
func (refusing) Resume(string) error           { return errShown }

func (s secretive) check(ctx context.Context) error {
	if access.From(ctx) == nil {
		s.t.Error("a function is called without the sender of the request")
	}
	if err := access.Check(ctx, authz.Right{Verb: "list", Resource: "secrets"}); err != nil {
		return err
	}
	return errShown
}

func (s secretive) Sources(ctx context.Context) ([]SourceInfo, error) {
	_ = s.check(ctx)
	return nil, nil
}

func (s secretive) Query(ctx context.Context, _ Query) (a Answer, err error) {
	return a, s.check(ctx)
}

func (s secretive) Letters(ctx context.Context, _ string, _ uint64, _ int) ([]Letter, error) {
	return nil, s.check(ctx)
}

func (s secretive) Letter(ctx context.Context, _ uint64) (*Letter, error) { return nil, s.check(ctx) }

func (s secretive) Retry(ctx context.Context, _ Selection, _ bool) (o Outcome, err error) {
	return o, s.check(ctx)
}

func (s secretive) Drop(ctx context.Context, _ Selection) (o Outcome, err error) {
	return o, s.check(ctx)
}

func (s secretive) Object(ctx context.Context, _ HistoryQuery) (a HistoryAnswer, err error) {
	return a, s.check(ctx)
}

func (s secretive) Runs(ctx context.Context, _ RunsQuery) (a RunsAnswer, err error) {
	return a, s.check(ctx)
}

func (s secretive) FollowRuns(ctx context.Context, _ RunsQuery, _ func(RunEvent) error) error {
	return s.check(ctx)
}

func (s secretive) Why(ctx context.Context, _ WhyQuery) (a WhyAnswer, err error) {
	return a, s.check(ctx)
}

func (s secretive) Excerpt(ctx context.Context, _ ExcerptQuery, _ io.Writer) error {
	return s.check(ctx)
}

func secretiveConfig(t *testing.T) ControlConfig {
	s := secretive{t}
	return ControlConfig{
		DeadLetters: s, Cache: s, History: s,
		Status:  func(ctx context.Context) Status { _ = s.check(ctx); return Status{} },
		Reload:  func(context.Context) error { return errShown },
		Resync:  func(ctx context.Context, _ Resync) (r Resynced, err error) { return r, s.check(ctx) },
		Pauser:  refusing{},
		Tap:     func(ctx context.Context, _ TapQuery, _ func(Tapped) error) error { return s.check(ctx) },
		Watch:   func(ctx context.Context, _ Query, _ func(WatchEvent) error) error { return s.check(ctx) },
		Active:  func(ctx context.Context, _ ActiveQuery) ([]Active, bool, error) { return nil, false, s.check(ctx) },
		Promote: func(context.Context) error { return errShown },
		Backup:  func(context.Context) (b Backup, err error) { return b, errShown },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(errShown.Error())) // the client then fails
		}),
	}
}

var placeholder = regexp.MustCompile(`\{\w+\}`)

// TestEndpoints shows for each endpoint that it answers nothing to unknown senders, and to others
// only with the right to its path, and the rights on the objects that it shows. The table of the
// documentation has each endpoint.
func TestEndpoints(t *testing.T) {
	// Guarantee: api-access
	cfg := secretiveConfig(t)
	c, url := guardedServer(t, cfg)
	document, err := os.ReadFile(filepath.FromSlash("../../docs/OPERATIONS.md"))
	must.Succeed(t, err)
	cfg.Access = func(*http.Request) (*access.Caller, error) { return nil, nil }
	for i, e := range (&control{ControlConfig: cfg}).endpoints() {
		method, path, _ := strings.Cut(e.pattern, " ")
		_, row, ok := bytes.Cut(document, []byte("| `"+e.pattern+"` |"))
		row, _, _ = bytes.Cut(row, []byte("\n"))
		if onPath := e.asks == asksPath || e.asks == asksBoth; !ok || bytes.Contains(row, []byte("` on the path")) != onPath {
			t.Errorf("the table of docs/OPERATIONS.md has another row of %s: %s", e.pattern, row)
		}
		path = placeholder.ReplaceAllString(path, "1")
		query, body := "", `{"route":"r"}`
		if strings.Contains(path, "/indexes/") {
			query = "?value=x"
		}
		if strings.Contains(path, "/history/") {
			query = "?name=x"
		}
		if strings.HasSuffix(path, "/history") {
			query = "?source=s"
		}
		if strings.HasSuffix(path, "/why") {
			query = "?source=s&name=x"
		}
		if strings.HasSuffix(path, "/pause") {
			body = `{}`
		}
		right := map[string]string{"GET": "get ", "POST": "create "}[method] + strings.Replace(path, "/api/", "/deltarouter/", 1)
		c.set("list secrets", false)
		want := func(what, token string, status int, shown bool) {
			t.Helper()
			got, text := ask(t, method, url+path+query, token, body)
			if got != status && status != 0 || strings.Contains(text, errShown.Error()) != shown {
				t.Errorf("%s, %s: %d %s", e.pattern, what, got, text)
			}
		}
		if e.asks == asksNothing {
			want("open", "", http.StatusOK, false)
			continue
		}
		want("no token", "", http.StatusUnauthorized, false)
		want("an unknown token", "x", http.StatusUnauthorized, false)
		want("no right", "ann", http.StatusForbidden, false)
		if i == 0 {
			if _, text := ask(t, method, url+path, "ann", body); !strings.Contains(text, `user \"ann\" may not get /deltarouter/v1/status`) {
				t.Error(text)
			}
		}
		// Another reviewer, which has not kept the denials.
		c2, url2 := guardedServer(t, secretiveConfig(t))
		url = url2
		c2.set(right, e.asks != asksObjects)
		switch e.asks {
		case asksPath:
			want("the right to the path", "ann", 0, path != "/api/v1/status" && path != "/api/v1/sources")
		default:
			want("no right on the objects", "ann", http.StatusForbidden, false)
			c3, url3 := guardedServer(t, secretiveConfig(t))
			url = url3
			c3.set(right, e.asks != asksObjects)
			c3.set("list secrets", true)
			want("all rights", "ann", 0, true)
		}
		c, url = guardedServer(t, secretiveConfig(t))
	}
}

// TestOneTable shows that all endpoints are in the tables: of the API, and of the probes.
func TestOneTable(t *testing.T) {
	// Guarantee: api-access
	files, err := filepath.Glob("*.go")
	must.Succeed(t, err)
	found := make(map[string]int)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		if n := len(regexp.MustCompile(`\.Handle(Func)?\(`).FindAll(text, -1)); n > 0 {
			found[file] = n
		}
	}
	if len(found) != 2 || found["access.go"] != 1 || found["server.go"] != 3 {
		t.Errorf("handlers are registered in %v: add endpoints to the table in access.go", found)
	}
}

func awaitEnd(ctx context.Context, t *testing.T) {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-late.C:
		t.Error("the request goes on")
	}
}

// TestStreamEnds shows that a stream ends with the reason when a right is withdrawn.
func TestStreamEnds(t *testing.T) {
	// Guarantee: api-access
	var c *cluster
	cfg := ControlConfig{Recheck: time.Millisecond, Watch: func(ctx context.Context, _ Query, show func(WatchEvent) error) error {
		if err := access.Check(ctx, authz.Right{Verb: "watch", Resource: "pods"}); err != nil {
			return err
		}
		if err := show(WatchEvent{Type: WatchListed}); err != nil {
			return err
		}
		c.set("watch pods", false)
		awaitEnd(ctx, t)
		return ctx.Err()
	}}
	c, url := guardedServer(t, cfg)
	c.set("watch pods", true)
	status, text := ask(t, http.MethodGet, url+"/api/v1/sources/pods?watch=true", "ann", "")
	if lines := strings.Split(text, "\n"); status != http.StatusOK || len(lines) != 3 || lines[1] != `{"type":"ERROR","message":"user \"ann\" may not watch pods in all namespaces"}` {
		t.Errorf("%d %s", status, text)
	}
}

// TestBackupEnds shows the same for a backup, whose connection is closed.
func TestBackupEnds(t *testing.T) {
	// Guarantee: api-access
	begun, ended := make(chan struct{}), make(chan error, 1)
	cfg := ControlConfig{Recheck: time.Millisecond, Backup: func(ctx context.Context) (b Backup, err error) {
		close(begun)
		awaitEnd(ctx, t)
		ended <- context.Cause(ctx)
		return b, context.Cause(ctx)
	}}
	c, url := guardedServer(t, cfg)
	c.set("create /deltarouter/v1/state/backup", true)
	go func() {
		<-begun
		c.set("create /deltarouter/v1/state/backup", false)
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/v1/state/backup", strings.NewReader("{}"))
	must.Succeed(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer ann")
	if response, err := http.DefaultClient.Do(r); err == nil {
		must.Report(t, response.Body.Close())
		if response.StatusCode == http.StatusOK {
			t.Error("a backup was answered")
		}
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), `user "ann" may not create /deltarouter/v1/state/backup`) {
		t.Error(err)
	}
}

// TestAudit shows that the log has the user and the result of each change.
func TestAudit(t *testing.T) {
	// Guarantee: api-access
	var log bytes.Buffer // complete before the answer is
	cfg := ControlConfig{Log: slog.New(slog.NewTextHandler(&log, nil)), Reload: func(context.Context) error { return nil }}
	_, url := guardedServer(t, cfg)
	if status, _ := ask(t, http.MethodPost, url+"/api/v1/reload", "ann", "{}"); status != http.StatusForbidden {
		t.Error(status)
	}
	if !strings.Contains(log.String(), `path=/api/v1/reload body="" user=ann peer=127.0.0.1:`) || !strings.Contains(log.String(), "status=403") {
		t.Error(log.String())
	}
}
