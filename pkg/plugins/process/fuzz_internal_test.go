package process

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	pluginv1 "github.com/deltarouter/deltarouter/proto/plugin/v1"
)

// FuzzAnswer: whatever a plugin answers is an error, or results that have the form that results must have.
func FuzzAnswer(f *testing.F) {
	for _, answer := range []*pluginv1.HandleResponse{
		{},
		{Results: []*pluginv1.Result{{Delta: 1, Verdict: pluginv1.Verdict_VERDICT_RETRY, Message: "m", RetryAfterMs: 1 << 62}}},
		{Results: []*pluginv1.Result{{Verdict: pluginv1.Verdict_VERDICT_RETRY, RetryAfterMs: -5}, {Delta: 1, Verdict: pluginv1.Verdict_VERDICT_RETRY, RetryAfterMs: 1<<63 - 1}}},
		{Results: []*pluginv1.Result{{Delta: 2, Events: []*pluginv1.Event{{Type: "t", Subject: "s", Data: []byte(`{}`)}, {Data: []byte(`{`)}}}}},
		{Results: []*pluginv1.Result{{Delta: 3}, {Verdict: 9}, {Verdict: pluginv1.Verdict_VERDICT_DROP, Events: []*pluginv1.Event{{}}}}},
	} {
		text, err := proto.Marshal(answer)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	limits := &Limits{Output: 1000, Events: 3, Message: 20}
	f.Fuzz(func(t *testing.T, text []byte) {
		var answer pluginv1.HandleResponse
		if proto.Unmarshal(text, &answer) != nil {
			return // gRPC says so
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

// FuzzStdio: a message of go-plugin's stream is read without a panic, and nothing of it twice.
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
