package expr_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
)

func TestEventProgram(t *testing.T) {
	e := &event.Event{
		ID: "0a", Type: "deltarouter.updated", Source: "/clusters/c/sources/pods", Subject: "default/web-0", Route: "r",
		Time: time.Date(2026, 3, 1, 15, 4, 5, 0, time.UTC),
		Data: []byte("{\"big\":9007199254740993,\"a\":[1.0,\n\"<é>\"],\"s\":\"x\\\"y\"}"),
	}
	for _, tt := range []struct{ text, want string }{
		{`event.data`, `{"big":9007199254740993,"a":[1.0,"<é>"],"s":"x\"y"}`},
		{`event.data.a`, `[1.0,"<é>"]`},
		{`{"text": event.subject + " " + event.type + " " + event.id}`, `{"text":"default/web-0 deltarouter.updated 0a"}`},
		{`event.data.s`, `"x\"y"`},
		{`{"key": secrets.key, "at": event.time}`, `{"at":"2026-03-01T15:04:05Z","key":"k"}`},
		{`event.?data.?none`, `null`},
		{`[event.data.big + 1]`, `[9007199254740994]`},
		{`event.data.a.map(x, [x])`, `[[1],["<é>"]]`},
	} {
		p, err := expr.CompileEvent(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		got, err := p.Eval(t.Context(), e, map[string]string{"key": "k"})
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{"event.", "object.metadata.name", `lookup("pods.name", "x")`, "op", "events.data"} {
		if _, err := expr.CompileEvent(text); len(expr.CompileErrors(err)) == 0 {
			t.Errorf("%s compiles: %v", text, err)
		}
	}
	for text, class := range map[string]error{"event.data.none": expr.ErrAbsent, "secrets.none": expr.ErrAbsent, "event.data.s + 1": nil} {
		p, err := expr.CompileEvent(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.Eval(t.Context(), e, nil); err == nil || class != nil && !errors.Is(err, class) || strings.Contains(err.Error(), `x"y`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
