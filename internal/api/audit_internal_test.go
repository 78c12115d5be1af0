package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAuditOfDecodedBody: the log has the request as the router decodes it, whatever its text looks
// like.
func TestAuditOfDecodedBody(t *testing.T) {
	ids := strings.TrimSuffix(strings.Repeat("1234567,", 200), ",")
	for name, c := range map[string]struct{ body, want string }{
		"white space":      {`{` + strings.Repeat(" ", 4000) + `"route":"payments"}`, `body="{\"route\":\"payments\"}" `},
		"a key twice":      {`{"route":"dull","route":"payments"}`, `body="{\"route\":\"payments\"}" `},
		"in another case":  {`{"route":"dull","ROUTE":"payments"}`, `body="{\"route\":\"payments\"}" `},
		"another value":    {`{"route":"payments"} {"route":"dull"}`, `body="{\"route\":\"payments\"}" `},
		"options at last":  {`{"current":true,"ids":[` + ids + `]}`, `,1234567],\"current\":true}" `},
		"the length":       {`{"current":true,"ids":[` + ids + `]}`, ` … (1624 bytes) … `},
		"it is not JSON":   {`{"route":"payments"`, `body="" `},
		"an unknown field": {`{"route":"payments","all":true}`, `body="" `},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := ControlConfig{DeadLetters: anyLetters{}, Log: slog.New(slog.NewTextHandler(&log, nil))}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/api/v1/deadletters/retry", strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			(&control{ControlConfig: cfg, closing: make(chan struct{})}).handler().ServeHTTP(httptest.NewRecorder(), r)
			if !strings.Contains(log.String(), c.want) || log.Len() > 700 {
				t.Errorf("got %s\nwant %s", log.String(), c.want)
			}
		})
	}
}

// anyLetters are dead letters of which any selection is retried.
type anyLetters struct{ DeadLetters }

// Retry does nothing.
func (anyLetters) Retry(context.Context, Selection, bool) (o Outcome, err error) { return o, nil }

// timed is an answer to a request, and the body of it, until its end is read.
type timed struct {
	*httptest.ResponseRecorder
	io.Reader

	t       *testing.T
	ended   bool
	forever bool // the time limit was lifted
}

// Read reads the body.
func (d *timed) Read(p []byte) (n int, err error) {
	n, err = d.Reader.Read(p)
	d.ended = d.ended || err != nil
	return n, err
}

// SetReadDeadline is for http.ResponseController.
func (d *timed) SetReadDeadline(at time.Time) error {
	if d.forever = at.IsZero(); d.forever && !d.ended {
		d.t.Error("the time limit is lifted before the body has ended")
	}
	return nil
}

// TestBodiesHaveAnEnd shows that no request lifts the time limit for reading it before its body was
// read. Otherwise a body that never ends would keep a connection.
func TestBodiesHaveAnEnd(t *testing.T) {
	cfg := ControlConfig{
		Log:    slog.New(slog.DiscardHandler),
		Resync: func(context.Context, Resync) (Resynced, error) { return Resynced{}, nil },
		Backup: func(context.Context) (b Backup, err error) { return b, ErrNoState },
	}
	lifted := 0
	for _, path := range []string{"resync", "state/backup"} {
		for _, body := range []string{`{}`, `{"route":"r"} `, `{"route":"r"`} {
			answer := &timed{ResponseRecorder: httptest.NewRecorder(), Reader: io.LimitReader(io.MultiReader(strings.NewReader(body), blanks{}), 1<<12), t: t}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/api/v1/"+path, io.NopCloser(answer))
			r.Header.Set("Content-Type", "application/json")
			(&control{ControlConfig: cfg, closing: make(chan struct{})}).handler().ServeHTTP(answer, r)
			if !answer.ended {
				t.Errorf("%s: the body was not read", path)
			}
			if answer.forever {
				lifted++
			}
		}
	}
	if lifted == 0 {
		t.Error("no request lifts its time limit")
	}
}

// blanks is white space without an end.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil }

// TestBodyIsTooLong shows the answer to a body that is too long, which the log has, too.
func TestBodyIsTooLong(t *testing.T) {
	var log bytes.Buffer
	cfg := ControlConfig{Log: slog.New(slog.NewTextHandler(&log, nil))}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/api/v1/resync", io.LimitReader(blanks{}, maxBody+1))
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	(&control{ControlConfig: cfg, closing: make(chan struct{})}).handler().ServeHTTP(answer, r)
	want := fmt.Sprintf(`{"error":"the body is longer than %d bytes: ask in several requests"}`, maxBody)
	if answer.Code != http.StatusRequestEntityTooLarge || strings.TrimSpace(answer.Body.String()) != want || !strings.Contains(log.String(), "status=413") {
		t.Errorf("%d %s\n%s", answer.Code, answer.Body, log.String())
	}
}
