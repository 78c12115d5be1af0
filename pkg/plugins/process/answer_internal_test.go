package process

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestAnswers: a malformed answer decides about no delta.
func TestAnswers(t *testing.T) {
	limits := &limitsConfig{Output: 10, Events: 3, Message: 20}
	event := &pluginv1.Event{Data: []byte(`"123456"`)}
	for _, tt := range []struct {
		name    string
		results []*pluginv1.Result
		want    error
	}{
		{"none", nil, nil},
		{"one", []*pluginv1.Result{{Delta: 1, Events: []*pluginv1.Event{event}}}, nil},
		{"out of range", []*pluginv1.Result{{Delta: 2}}, errMalformed},
		{"twice", []*pluginv1.Result{{Delta: 1}, {Delta: 1}}, errMalformed},
		{"unknown verdict", []*pluginv1.Result{{Verdict: 4}}, errMalformed},
		{"negative verdict", []*pluginv1.Result{{Verdict: -1}}, errMalformed},
		{"events of a drop", []*pluginv1.Result{{Verdict: pluginv1.Verdict_VERDICT_DROP, Events: []*pluginv1.Event{event}}}, errMalformed},
		{"too much", []*pluginv1.Result{{Events: []*pluginv1.Event{event, event}}}, errTooMuch},
	} {
		if _, err := decode(&pluginv1.HandleResponse{Results: tt.results}, 2, limits); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// FuzzAnswer: any answer is an error, or yields results of the required form.
func FuzzAnswer(f *testing.F) {
	for _, answer := range []*pluginv1.HandleResponse{
		{},
		{Results: []*pluginv1.Result{{Delta: 1, Verdict: pluginv1.Verdict_VERDICT_RETRY, Message: "m", RetryAfterMs: 1 << 62}}},
		{Results: []*pluginv1.Result{{Verdict: pluginv1.Verdict_VERDICT_RETRY, RetryAfterMs: -5}, {Delta: 1, Verdict: pluginv1.Verdict_VERDICT_RETRY, RetryAfterMs: 1<<63 - 1}}},
		{Results: []*pluginv1.Result{{Delta: 2, Events: []*pluginv1.Event{{Type: "t", Subject: "s", Data: []byte(`{}`)}, {Data: []byte(`{`)}}}}},
		{Results: []*pluginv1.Result{{Delta: 3}, {Verdict: 9}, {Verdict: pluginv1.Verdict_VERDICT_DROP, Events: []*pluginv1.Event{{}}}}},
	} {
		text, err := proto.Marshal(answer)
		must.Succeed(f, err)
		f.Add(text)
	}
	limits := &limitsConfig{Output: 1000, Events: 3, Message: 20}
	f.Fuzz(func(t *testing.T, text []byte) {
		var answer pluginv1.HandleResponse
		if proto.Unmarshal(text, &answer) != nil {
			return // gRPC rejects it
		}
		results, err := decode(&answer, 3, limits)
		if err != nil {
			return
		}
		if len(results) != 3 {
			t.Fatalf("%d results", len(results))
		}
		for _, r := range results {
			if (r.Err != nil) != (r.Verdict == plugins.Retry || r.Verdict == plugins.Fail) || r.Verdict != plugins.OK && r.Events != nil {
				t.Errorf("%+v", r)
			}
			if plugins.RetryAfter(r.Err) < 0 || len(r.Events) > limits.Events {
				t.Errorf("%+v", r)
			}
		}
	})
}

// FuzzStdio: any message of go-plugin's stream is parsed without a panic, and no part of it twice.
func FuzzStdio(f *testing.F) {
	f.Add([]byte("\x08\x02\x12\x03abc"))
	f.Add([]byte("\x12\xff\xff\xff\xff\x0f"))
	f.Add([]byte("\x1a\x01x\x12\x00"))
	f.Fuzz(func(t *testing.T, message []byte) {
		if _, data := parseStdio(message); len(data) > len(message) {
			t.Error(data)
		}
	})
}

// TestDeltaSize: deltaSize is an upper bound. Otherwise a batch could exceed the maximum message of
// the plugin.
func TestDeltaSize(t *testing.T) {
	last := time.Unix(0, math.MaxInt64)
	long := strings.Repeat("x", 300)
	resource := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Group: long, Version: long, Resource: long}, Cluster: long, Kind: long}
	large, err := event.ParseObject(resource, `{"metadata":{"name":"`+long+`","namespace":"`+long+`","uid":"`+long+`","resourceVersion":"`+long+`"},"x":"`+strings.Repeat("x", 3<<20)+`"}`)
	must.Succeed(t, err)
	all := append(plugintest.Deltas(t), &event.Delta{
		Source: long, Op: event.Left, New: large, Old: large, Initial: true, Stale: true, Redelivered: true, Late: true, Repeat: 1,
		Suppressed: math.MaxInt32, Since: last, Seen: last,
		Event: &event.Event{ID: long, Type: long, Source: long, Subject: long, Route: long, Time: last, Data: []byte(strings.Repeat("x", 3<<20))},
	})
	for _, d := range all {
		if is, most := proto.Size(&pluginv1.HandleRequest{Deltas: encode([]*event.Delta{d})}), deltaSize(d); is > most {
			t.Errorf("%v takes %d bytes, %d are counted", d, is, most)
		}
	}
}
