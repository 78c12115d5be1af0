package deltaroutertest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

func TestKV(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Host{KV: map[string][]byte{}}
		h.Use(t)
		long := strings.Repeat("x", 100_000)
		for key, ttl := range map[string]time.Duration{"for ever": 0, "for long": time.Hour, "short": time.Nanosecond} {
			if err := deltarouter.KVSet(key, []byte(long), ttl); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute) // of the bubble's clock
		for key, want := range map[string]bool{"for ever": true, "for long": true, "short": false, "never": false} {
			value, ok, err := deltarouter.KVGet(key)
			if err != nil || ok != want || ok && string(value) != long {
				t.Errorf("%s: %d bytes, %v, %v", key, len(value), ok, err)
			}
		}
		for range 2 {
			if err := deltarouter.KVDelete("for ever"); err != nil || len(h.KV) != 1 {
				t.Errorf("%d are left: %v", len(h.KV), err)
			}
		}
		if err := deltarouter.KVSet("a", nil, -time.Second); !errors.Is(err, deltarouter.ErrInvalid) {
			t.Errorf("a negative ttl: %v", err)
		}
	})
}

func TestLookup(t *testing.T) {
	pod := func(name string) string {
		return `{"metadata": {"namespace": "d", "name": "` + name + `"}, "objects": [1], "x": "` + strings.Repeat("]", 9000) + `"}`
	}
	(&Host{
		Indexes: map[string]map[string][]string{"pods.byNode": {`n"1`: {pod("a"), pod("b")}}},
		Objects: map[string][]string{"pods": {pod("a"), pod("b")}},
	}).Use(t)

	objects, err := deltarouter.Lookup("pods.byNode", `n"1`)
	if err != nil || len(objects) != 2 || string(objects[1]) != pod("b") {
		t.Errorf("got %d objects, %v", len(objects), err)
	}
	if n, err := deltarouter.Count("pods.byNode", `n"1`); n != 2 || err != nil {
		t.Errorf("counted %d, %v", n, err)
	}
	if n, err := deltarouter.Count("pods.byNode", "n2"); n != 0 || err != nil {
		t.Errorf("counted %d, %v", n, err)
	}
	if o, err := deltarouter.Get("pods", "d", "b"); string(o) != pod("b") || err != nil {
		t.Errorf("got %s, %v", o, err)
	}
	if o, err := deltarouter.Get("pods", "d", "c"); o != nil || err != nil {
		t.Errorf("got %s, %v", o, err)
	}
	if all, err := deltarouter.List("pods"); len(all) != 2 || err != nil {
		t.Errorf("got %d, %v", len(all), err)
	}
	if _, err := deltarouter.Lookup("pods.byOwner", "x"); !errors.Is(err, deltarouter.ErrDenied) {
		t.Errorf("got %v", err)
	}
	if _, err := deltarouter.Get("secrets", "d", "x"); !errors.Is(err, deltarouter.ErrDenied) {
		t.Errorf("got %v", err)
	}
}

func TestHTTP(t *testing.T) {
	requests := 0
	(&Host{HTTP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Answer", r.Header.Get("X-Ask"))
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, r.Method, " ", r.URL, " ", string(body))
	})}).Use(t)
	for _, body := range []string{"é", "\xff", strings.Repeat("x", 10_000)} {
		requests = 0
		got, err := deltarouter.HTTP(deltarouter.Request{
			Method: "PUT", URL: "https://example.com/a?b=c", Body: []byte(body), Headers: map[string]string{"X-Ask": "1"},
		})
		if err != nil || got.Status != 418 || got.Headers["x-answer"] != "1" || string(got.Body) != "PUT https://example.com/a?b=c "+body {
			t.Errorf("got %+v, %v", got, err)
		}
		if requests != 1 {
			t.Errorf("it was done %d times", requests)
		}
	}
}

func TestEmit(t *testing.T) {
	h := &Host{}
	h.Use(t)
	var b [3]byte
	if err := deltarouter.Random(b[:]); err != nil || b != [3]byte{1, 2, 3} {
		t.Errorf("got %v, %v", b, err)
	}
	if err := (deltarouter.Delta{}).Emit(deltarouter.Event{Type: "t", Data: 1}); err != nil || fmt.Sprint(h.Emitted) != `[{"type":"t","data":1}]` {
		t.Errorf("got %s, %v", h.Emitted, err)
	}
	if err := (deltarouter.Delta{}).Emit(deltarouter.Event{Data: func() {}}); err == nil {
		t.Error("a function is emitted")
	}
}

// TestNotGranted also shows that Use ends with its test.
func TestNotGranted(t *testing.T) {
	_, _, get := deltarouter.KVGet("a")
	_, request := deltarouter.HTTP(deltarouter.Request{URL: "https://example.com"})
	_, count := deltarouter.Count("a.b", "c")
	for _, err := range []error{get, request, count, deltarouter.KVSet("a", nil, 0), deltarouter.KVDelete("a"), deltarouter.Random(nil), (deltarouter.Delta{}).Emit(deltarouter.Event{})} {
		if !errors.Is(err, deltarouter.ErrDenied) {
			t.Errorf("got %v", err)
		}
	}
}
