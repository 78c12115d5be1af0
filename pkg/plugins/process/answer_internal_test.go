package process

import (
	"errors"
	"testing"

	pluginv1 "github.com/deltarouter/deltarouter/proto/plugin/v1"
)

// TestAnswers: an answer whose form is wrong says nothing about any delta.
func TestAnswers(t *testing.T) {
	limits := &Limits{Output: 10, Events: 3, Message: 20}
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
