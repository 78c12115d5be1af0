package process

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/deltarouter/deltarouter/pkg/lines"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
	pluginv1 "github.com/deltarouter/deltarouter/proto/plugin/v1"
)

// errMalformed is wrapped by what is wrong with the form of an answer.
var errMalformed = errors.New("malformed answer")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// decode makes results of the answer to a batch of n deltas. The error wraps errMalformed or errTooMuch; events that are no good fail their
// delta only.
func decode(answer *pluginv1.HandleResponse, n int, limits *Limits) ([]plugins.Result, error) {
	results := make([]plugins.Result, n)
	seen := make([]bool, n)
	size := 0
	for k, r := range answer.GetResults() {
		i := r.GetDelta()
		if uint64(i) >= uint64(n) || seen[i] {
			return nil, malformed("result %d is about delta %d of %d, or about one that was answered", k, i, n)
		}
		seen[i] = true
		for _, e := range r.GetEvents() {
			size += len(e.GetData())
		}
		var err error
		if results[i], err = limits.result(r); err != nil {
			return nil, fmt.Errorf("result %d: %w", k, err)
		}
	}
	if size > int(limits.Output) {
		return nil, fmt.Errorf("%w: %d bytes of events, at most %d (limits.output)", errTooMuch, size, limits.Output)
	}
	return results, nil
}

// result makes the result of one delta.
func (l *Limits) result(r *pluginv1.Result) (plugins.Result, error) {
	message := lines.Clean(r.GetMessage(), int(l.Message))
	verdict := r.GetVerdict()
	if verdict != pluginv1.Verdict_VERDICT_OK && len(r.GetEvents()) > 0 {
		return plugins.Result{}, malformed("%d events with %s", len(r.GetEvents()), verdict)
	}
	switch verdict {
	case pluginv1.Verdict_VERDICT_OK:
		return l.ok(r.GetEvents()), nil
	case pluginv1.Verdict_VERDICT_DROP:
		return plugins.Result{Verdict: plugins.Drop}, nil
	case pluginv1.Verdict_VERDICT_RETRY:
		after := time.Duration(min(max(r.GetRetryAfterMs(), 0), longestRetry.Milliseconds())) * time.Millisecond
		return plugins.Result{Verdict: plugins.Retry, Err: plugins.RetryLater(reason(message, "the plugin asks for another try"), after)}, nil
	case pluginv1.Verdict_VERDICT_FAIL:
		return plugins.Result{Verdict: plugins.Fail, Err: reason(message, "the plugin failed it, without a message")}, nil
	}
	return plugins.Result{}, malformed("there is no verdict %d", verdict)
}

// longestRetry is as long as a guest in WebAssembly can ask for.
const longestRetry = 49 * 24 * time.Hour

func reason(message, otherwise string) error {
	if message == "" {
		message = otherwise
	}
	return errors.New(message)
}

// ok makes the result of a delta that is ok.
func (l *Limits) ok(given []*pluginv1.Event) plugins.Result {
	if len(given) == 0 {
		return plugins.Result{}
	}
	if len(given) > l.Events {
		return reject(fmt.Errorf("%d events for one delta, at most %d (limits.events)", len(given), l.Events))
	}
	events := make([]plugins.Emit, len(given))
	for k, e := range given {
		if err := l.checkEvent(e); err != nil {
			return reject(fmt.Errorf("event %d of the plugin: %w", k, err))
		}
		events[k] = plugins.Emit{Data: e.GetData(), Type: e.GetType(), Subject: e.GetSubject()}
	}
	return plugins.Result{Events: events}
}

// checkEvent says what is wrong with an event. Its error never quotes it.
func (l *Limits) checkEvent(e *pluginv1.Event) error {
	if len(e.GetData()) == 0 {
		return errors.New("it has no data")
	}
	if err := rawjson.Check(string(e.GetData())); err != nil {
		return err
	}
	return errors.Join(l.attribute("type", e.GetType()), l.attribute("subject", e.GetSubject()))
}

// attribute checks a CloudEvents attribute, which may be left out.
func (l *Limits) attribute(name, s string) error {
	switch {
	case len(s) > int(l.Message):
		return fmt.Errorf("%s has %d bytes, at most %d (limits.message)", name, len(s), l.Message)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("%s contains a control character", name)
	}
	return nil
}
