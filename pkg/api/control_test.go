package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/api"
)

// desk has letters 1 to n of the route r.
type desk struct {
	n       int
	asked   []string
	outcome api.Outcome
	err     error
}

func (d *desk) Letters(_ context.Context, route string, after uint64, limit int) (letters []api.Letter, err error) {
	for id := after + 1; id <= uint64(d.n) && len(letters) < limit && (route == "" || route == "r"); id++ {
		letters = append(letters, api.Letter{ID: id, Route: "r", Error: "no"})
	}
	return letters, d.err
}

func (d *desk) Letter(id uint64) (*api.Letter, error) {
	if id == 0 || id > uint64(d.n) {
		return nil, d.err
	}
	return &api.Letter{ID: id, Route: "r", Delta: api.Delta{Op: "added", Object: json.RawMessage(`{"a":1}`)}}, d.err
}

func (d *desk) Retry(_ context.Context, which api.Selection, current bool) (api.Outcome, error) {
	d.ask("retry", which, current)
	return d.outcome, d.err
}

func (d *desk) Drop(_ context.Context, which api.Selection) (api.Outcome, error) {
	d.ask("drop", which, false)
	return d.outcome, d.err
}

func (d *desk) ask(what string, which api.Selection, current bool) {
	text, err := json.Marshal(which)
	if err == nil {
		d.asked = append(d.asked, what+" "+string(text)+" "+strconv.FormatBool(current))
	}
}

// serve starts the control API and returns the address that it listens on, as in listen.api.
func serve(t *testing.T, addr string, letters api.DeadLetters) string {
	t.Helper()
	s := api.NewControl(api.ControlConfig{
		Addr: addr, DeadLetters: letters, Log: slog.New(slog.DiscardHandler),
		Status: func() api.Status { return api.Status{Routes: []api.RouteStatus{{Name: "r", Owed: 3}}} },
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if strings.HasPrefix(addr, "unix:") {
		return addr
	}
	return s.Addr()
}

func TestClient(t *testing.T) {
	d := &desk{n: 2500, outcome: api.Outcome{Done: 2, NotDone: 1, Failed: []api.Failure{{ID: 7, Error: "why"}}}}
	for _, addr := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "api.sock")} {
		d.asked = nil
		c := api.NewClient(serve(t, addr, d))
		letters, err := c.Letters(t.Context(), "r")
		if err != nil || len(letters) != 2500 || letters[2499].ID != 2500 {
			t.Error(len(letters), err)
		}
		if letters, err = c.Letters(t.Context(), "other"); err != nil || len(letters) != 0 {
			t.Error(letters, err)
		}
		letter, err := c.Letter(t.Context(), 2)
		if err != nil || letter.ID != 2 || string(letter.Delta.Object) != `{"a":1}` {
			t.Error(letter, err)
		}
		if _, err = c.Letter(t.Context(), 9999); err == nil || !strings.Contains(err.Error(), "no dead letter 9999") {
			t.Error(err)
		}
		outcome, err := c.Retry(t.Context(), api.Selection{IDs: []uint64{1, 2}}, true)
		if err != nil || outcome.Done != 2 || outcome.Failed[0].Error != "why" {
			t.Error(outcome, err)
		}
		if _, err := c.Drop(t.Context(), api.Selection{Route: "r"}); err != nil {
			t.Error(err)
		}
		if want := []string{`retry {"ids":[1,2]} true`, `drop {"route":"r"} false`}; !slices.Equal(d.asked, want) {
			t.Errorf("got %q, want %q", d.asked, want)
		}
		status, err := c.Status(t.Context())
		if err != nil || len(status.Routes) != 1 || status.Routes[0].Owed != 3 {
			t.Error(status, err)
		}
	}
}

func TestClientErrors(t *testing.T) {
	c := api.NewClient("unix:" + filepath.Join(t.TempDir(), "none.sock"))
	if _, err := c.Letters(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("got %v", err)
	}
	c = api.NewClient(serve(t, "127.0.0.1:0", nil))
	if _, err := c.Letters(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "state.dir") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Drop(t.Context(), api.Selection{Route: "r"}); err == nil || !strings.Contains(err.Error(), "state.dir") {
		t.Errorf("got %v", err)
	}
	c = api.NewClient(serve(t, "127.0.0.1:0", &desk{err: errors.New("the disk is gone")}))
	if _, err := c.Letter(t.Context(), 1); err == nil || err.Error() != "the disk is gone" {
		t.Errorf("got %v", err)
	}
	c = api.NewClient(strings.TrimPrefix(start(t, api.Config{}), "http://"))
	if _, err := c.Letters(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the probes: %v", err)
	}
}

func TestControlRefuses(t *testing.T) {
	d := &desk{n: 1}
	base := "http://" + serve(t, "127.0.0.1:0", d)
	const json = "application/json"
	for name, c := range map[string]struct {
		method, path, host, kind, body string
		status                         int
	}{
		"as it should be":      {"POST", "/api/v1/deadletters/drop", "", json, `{"ids":[1]}`, 200},
		"with a charset":       {"POST", "/api/v1/deadletters/drop", "localhost:1", json + "; charset=utf-8", `{"ids":[1]}`, 200},
		"IPv6":                 {"GET", "/api/v1/deadletters", "[::1]:8484", "", "", 200},
		"a name that rebinds":  {"GET", "/api/v1/deadletters", "evil.example", "", "", 403},
		"with a port":          {"GET", "/api/v1/deadletters", "evil.example:8484", "", "", 403},
		"like a loopback":      {"GET", "/api/v1/deadletters", "127.0.0.1.evil.example", "", "", 403},
		"another address":      {"GET", "/api/v1/deadletters", "192.0.2.1", "", "", 403},
		"a form":               {"POST", "/api/v1/deadletters/drop", "", "application/x-www-form-urlencoded", `{"ids":[1]}`, 415},
		"text":                 {"POST", "/api/v1/deadletters/drop", "", "text/plain", `{"ids":[1]}`, 415},
		"no type":              {"POST", "/api/v1/deadletters/drop", "", "", `{"ids":[1]}`, 415},
		"no JSON":              {"POST", "/api/v1/deadletters/drop", "", json, `{"ids":`, 400},
		"an unknown key":       {"POST", "/api/v1/deadletters/drop", "", json, `{"ids":[1],"current":true}`, 400},
		"nothing selected":     {"POST", "/api/v1/deadletters/retry", "", json, `{}`, 400},
		"both":                 {"POST", "/api/v1/deadletters/retry", "", json, `{"ids":[1],"route":"r"}`, 400},
		"too long":             {"POST", "/api/v1/deadletters/retry", "", json, `{"route":"` + strings.Repeat("x", 2<<20) + `"}`, 413},
		"GET that would drop":  {"GET", "/api/v1/deadletters/drop", "", "", "", 400},
		"a limit that is none": {"GET", "/api/v1/deadletters?limit=x", "", "", "", 400},
		"no such path":         {"GET", "/api/v2", "", "", "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			d.asked = nil
			r, err := http.NewRequestWithContext(t.Context(), c.method, base+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if r.Host = c.host; c.kind != "" {
				r.Header.Set("Content-Type", c.kind)
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if response.StatusCode != c.status || err != nil {
				t.Errorf("status %d, want %d: %s", response.StatusCode, c.status, text)
			}
			if c.status != 200 && len(d.asked) > 0 {
				t.Errorf("it was done: %q", d.asked)
			}
		})
	}
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	newServer := func(path string) *api.Server {
		return api.NewControl(api.ControlConfig{Addr: "unix:" + path, Log: slog.New(slog.DiscardHandler)})
	}
	// What a killed router leaves behind is replaced.
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	s := newServer(path)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := newServer(path).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("two on one socket: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is there after Close: %v", err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newServer(path).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file in the way: %v", err)
	}
}
