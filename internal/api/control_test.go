package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

// desk has the dead letters 1 to n of route r.
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

func (d *desk) Letter(_ context.Context, id uint64) (*api.Letter, error) {
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

// serve starts the control API and returns its address in the form of listen.api.
func serve(t *testing.T, addr string, letters api.DeadLetters) string {
	t.Helper()
	s := api.NewControl(api.ControlConfig{
		Addr: addr, DeadLetters: letters, Log: slog.New(slog.DiscardHandler),
		Status: func(context.Context) api.Status {
			return api.Status{
				Routes: []api.RouteStatus{{Name: "r", Pending: 3}},
				Checks: []api.Check{{Name: "sources/a", Holds: true, Message: strings.Repeat("ü", 2000)}, {Name: "sources/b", OK: true, Holds: true}},
			}
		},
	})
	must.Succeed(t, s.Start(t.Context()))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		must.Report(t, s.Close(context.WithoutCancel(t.Context())))
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
		if err != nil || len(status.Routes) != 1 || status.Routes[0].Pending != 3 {
			t.Error(status, err)
		}
		if status.Ready || len(status.Checks) != 2 || status.Checks[0].Message != strings.Repeat("ü", 512)+"…" || !status.Checks[1].OK {
			t.Error(status.Ready, status.Checks)
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
	// Guarantee: api-no-web
	d := &desk{n: 1}
	base := "http://" + serve(t, "127.0.0.1:0", d)
	const json = "application/json"
	for name, c := range map[string]struct {
		method, path, host, kind, body string
		status                         int
		header                         string
	}{
		"as it should be":      {"POST", "/api/v1/deadletters/drop", "", json, `{"ids":[1]}`, 200, ""},
		"with a charset":       {"POST", "/api/v1/deadletters/drop", "localhost:1", json + "; charset=utf-8", `{"ids":[1]}`, 200, ""},
		"IPv6":                 {"GET", "/api/v1/deadletters", "[::1]:8484", "", "", 200, ""},
		"a name that rebinds":  {"GET", "/api/v1/deadletters", "evil.example", "", "", 403, ""},
		"with a port":          {"GET", "/api/v1/deadletters", "evil.example:8484", "", "", 403, ""},
		"like a loopback":      {"GET", "/api/v1/deadletters", "127.0.0.1.evil.example", "", "", 403, ""},
		"another address":      {"GET", "/api/v1/deadletters", "192.0.2.1", "", "", 403, ""},
		"a form":               {"POST", "/api/v1/deadletters/drop", "", "application/x-www-form-urlencoded", `{"ids":[1]}`, 415, ""},
		"text":                 {"POST", "/api/v1/deadletters/drop", "", "text/plain", `{"ids":[1]}`, 415, ""},
		"no type":              {"POST", "/api/v1/deadletters/drop", "", "", `{"ids":[1]}`, 415, ""},
		"no JSON":              {"POST", "/api/v1/deadletters/drop", "", json, `{"ids":`, 400, ""},
		"an unknown key":       {"POST", "/api/v1/deadletters/drop", "", json, `{"ids":[1],"current":true}`, 400, ""},
		"nothing selected":     {"POST", "/api/v1/deadletters/retry", "", json, `{}`, 400, ""},
		"both":                 {"POST", "/api/v1/deadletters/retry", "", json, `{"ids":[1],"route":"r"}`, 400, ""},
		"too long":             {"POST", "/api/v1/deadletters/retry", "", json, `{"route":"` + strings.Repeat("x", 2<<20) + `"}`, 413, ""},
		"GET that would drop":  {"GET", "/api/v1/deadletters/drop", "", "", "", 400, ""},
		"a limit that is none": {"GET", "/api/v1/deadletters?limit=x", "", "", "", 400, ""},
		"no such path":         {"GET", "/api/v2", "", "", "", 404, ""},
		"a page":               {"GET", "/api/v1/deadletters", "", "", "", 403, "Origin: https://evil.example"},
		"a page without name":  {"GET", "/api/v1/deadletters", "", "", "", 403, "Origin: null"},
		"an image of a page":   {"GET", "/api/v1/status", "", "", "", 403, "Sec-Fetch-Site: cross-site"},
		"of the same domain":   {"GET", "/api/v1/status", "", "", "", 403, "Sec-Fetch-Site: same-site"},
		"typed by a person":    {"GET", "/api/v1/status", "", "", "", 200, "Sec-Fetch-Site: none"},
		"from what it showed":  {"GET", "/api/v1/status", "", "", "", 200, "Sec-Fetch-Site: same-origin"},
		"a page that drops":    {"POST", "/api/v1/deadletters/drop", "", json, `{"ids":[1]}`, 403, "Origin: https://evil.example"},
	} {
		t.Run(name, func(t *testing.T) {
			d.asked = nil
			r, err := http.NewRequestWithContext(t.Context(), c.method, base+c.path, strings.NewReader(c.body))
			must.Succeed(t, err)
			if r.Host = c.host; c.kind != "" {
				r.Header.Set("Content-Type", c.kind)
			}
			if key, value, ok := strings.Cut(c.header, ": "); ok {
				r.Header.Set(key, value)
			}
			response, err := http.DefaultClient.Do(r)
			must.Succeed(t, err)
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

// TestChangesAreLogged shows that the log contains each changing request with its sender, and no
// reading request.
func TestChangesAreLogged(t *testing.T) {
	// Guarantee: api-no-web
	for addr, peer := range map[string]string{
		"127.0.0.1:0": "peer=127.0.0.1:",
		"unix:" + filepath.Join(t.TempDir(), "api.sock"): fmt.Sprintf("peer=\"unix uid=%d pid=%d\"", os.Getuid(), os.Getpid()),
	} {
		if runtime.GOOS != "linux" && strings.HasPrefix(addr, "unix:") {
			peer = "peer=unix"
		}
		var log bytes.Buffer // complete before the answer is
		s := api.NewControl(api.ControlConfig{
			Addr: addr, Log: slog.New(slog.NewTextHandler(&log, nil)), Status: func(context.Context) api.Status { return api.Status{} },
			Reload: func(context.Context) error { return errors.New("no") }, DeadLetters: &desk{n: 1},
		})
		must.Succeed(t, s.Start(t.Context()))
		log.Reset()
		at := addr
		if !strings.HasPrefix(at, "unix:") {
			at = s.Addr()
		}
		c := api.NewClient(at)
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Drop(t.Context(), api.Selection{Route: "r"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Drop(t.Context(), api.Selection{Route: strings.Repeat("x", 1000)}); err != nil {
			t.Fatal(err)
		}
		must.Report(t, s.Close(t.Context()))
		got := log.String()
		if want := `method=POST path=/api/v1/deadletters/drop body="{\"route\":\"r\"}" ` + peer; strings.Count(got, "\n") != 2 || !strings.Contains(got, want) || len(got) > 1200 {
			t.Errorf("the log lacks %s:\n%s", want, got)
		}
	}
}

func TestSocket(t *testing.T) {
	// Guarantee: files-private
	path := filepath.Join(t.TempDir(), "api.sock")
	newServer := func(path string) *api.Server {
		return api.NewControl(api.ControlConfig{Addr: "unix:" + path, Log: slog.New(slog.DiscardHandler)})
	}
	// The server replaces the socket file of a killed router.
	left, err := net.Listen("unix", path)
	must.Succeed(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	s := newServer(path)
	must.Succeed(t, s.Start(t.Context()))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if s.Addr() != path {
		t.Errorf("it names itself %s", s.Addr())
	}
	if beside, err := os.ReadDir(filepath.Dir(path)); err != nil || len(beside) != 1 {
		t.Errorf("beside it: %v, %v", beside, err)
	}
	must.Fail(t, newServer(path).Start(t.Context()), "in use")
	must.Report(t, s.Close(t.Context()))
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is there after Close: %v", err)
	}
	must.Succeed(t, os.WriteFile(path, []byte("precious"), 0o600))
	must.Fail(t, newServer(path).Start(t.Context()), "no socket")
}
