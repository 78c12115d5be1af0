package abi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestParseAnswer shows the results of answers in JSON.
func TestParseAnswer(t *testing.T) {
	for _, tt := range []struct {
		answer, want string
		after        time.Duration
	}{
		{answer: "", want: "ok"},
		{answer: " null\n", want: "ok"},
		{answer: "[]", want: "ok"},
		{answer: `[{"data":1},{"type":"t","subject":"s","data":{"a":2}}]`, want: `ok /=1 t/s={"a":2}`},
		{answer: ` {"events": [{"data": [1]}]} `, want: "ok /=[1]"},
		{answer: `{"drop":true}`, want: "drop"},
		{answer: `{"retry":"later"}`, want: "retry later"},
		{answer: `{"retry":"later","afterMs":1500}`, want: "retry later", after: 1500 * time.Millisecond},
		{answer: `{"afterMs":1e30,"retry":""}`, want: "retry the guest asks for another try", after: LongestRetry},
		{answer: `{"afterMs":-1,"retry":"a"}`, want: "retry a"},
		{answer: `{"error":"bad\u001b[31m"}`, want: "fail bad\ufffd[31m"},
		{answer: `{"error":""}`, want: "fail the guest failed it, without a message"},
		{answer: `{}`, want: "fail malformed answer"},
		{answer: `{"drop":false}`, want: "fail malformed answer"},
		{answer: `{"drop":true,"events":[]}`, want: "fail malformed answer"},
		{answer: `{"retry":"a","afterMs":"soon"}`, want: "fail malformed answer: afterMs"},
		{answer: `{"verdict":1}`, want: "fail malformed answer"},
		{answer: `3`, want: "fail malformed answer"},
		{answer: `Hello`, want: "fail malformed answer"},
		{answer: `[{"data":1}`, want: "fail malformed answer"},
		{answer: `[1]`, want: "fail event 0: not a JSON object"},
		{answer: `[{"data":1},{}]`, want: "fail event 1: it has no data"},
		{answer: "[" + strings.Repeat(`{"data":1},`, 64) + `{"data":1}]`, want: "fail more than 64 events"},
	} {
		r := ParseAnswer(defaults(), tt.answer)
		got := r.Verdict.String()
		if r.Err != nil {
			got += " " + r.Err.Error()
		}
		for _, e := range r.Events {
			got += " " + e.Type + "/" + e.Subject + "=" + string(e.Data)
		}
		if got != tt.want && !(r.Verdict == plugins.Fail && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: got %s, want %s", tt.answer, got, tt.want)
		}
		if after := plugins.RetryAfter(r.Err); after != tt.after {
			t.Errorf("%s: again after %v, want %v", tt.answer, after, tt.after)
		}
	}
}

// FuzzParseAnswer shows that no answer makes events beyond the limits, or a message that cannot be
// printed.
func FuzzParseAnswer(f *testing.F) {
	f.Add(`[{"data":1}]`)
	f.Add(`{"retry":"a","afterMs":1}`)
	f.Fuzz(func(t *testing.T, answer string) {
		l := defaults()
		l.Events = 2
		r := ParseAnswer(l, answer)
		if len(r.Events) > l.Events || (r.Err == nil) != (r.Verdict == plugins.OK || r.Verdict == plugins.Drop) {
			t.Errorf("%q: %+v", answer, r)
		}
		for _, e := range r.Events {
			if !json.Valid(e.Data) {
				t.Errorf("%q: the data %q is not JSON", answer, e.Data)
			}
		}
	})
}

// TestAppendDelta shows a delta as JSON.
func TestAppendDelta(t *testing.T) {
	object := func(text string) *event.Object {
		o, err := event.ParseObject(&event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Cluster: "c", Kind: "Pod"}, text)
		must.Succeed(t, err)
		return o
	}
	before, after := object("{\"metadata\":\n{\"namespace\":\"d\",\"name\":\"a\",\"uid\":\"u\",\"resourceVersion\":\"1\"}}"), object(`{"metadata":{"namespace":"d","name":"a","uid":"u","resourceVersion":"2"}}`)
	const meta = `"cluster":"c","resource":"v1/pods","kind":"Pod","namespace":"d","name":"a","uid":"u","resourceVersion":`
	const flags = `,"initial":false,"stale":false,"redelivered":false,"late":false,"repeat":false,"seen":"1970-01-01T00:00:01Z"`
	for _, tt := range []struct {
		delta event.Delta
		want  string
	}{
		{
			event.Delta{Source: "pods", Op: event.Updated, Old: before, New: after, Seen: time.Unix(1, 0)},
			`{"op":"updated","source":"pods",` + meta + `"2"` + flags + `,"object":{"metadata":{"namespace":"d","name":"a","uid":"u","resourceVersion":"2"}},"oldObject":{"metadata":{"namespace":"d","name":"a","uid":"u","resourceVersion":"1"}}}`,
		},
		{
			event.Delta{Source: "pods", Op: event.Deleted, Old: before, Seen: time.Unix(1, 0), Since: time.Unix(2, 0), Suppressed: 3, TraceParent: "t", With: []byte(`{"a":null}`), Event: &event.Event{ID: "i"}},
			`{"op":"deleted","source":"pods",` + meta + `"1"` + flags + `,"since":"1970-01-01T00:00:02Z","suppressed":3,"traceParent":"t",` +
				`"event":{"id":"i","type":"","source":"","subject":"","route":"","time":"0001-01-01T00:00:00Z","data":null},"with":{"a":null},"object":{"metadata":{"namespace":"d","name":"a","uid":"u","resourceVersion":"1"}}}`,
		},
	} {
		if got := string(AppendDelta(nil, &tt.delta)); got != tt.want {
			t.Errorf("got\n%s, want\n%s", got, tt.want)
		}
	}
}
