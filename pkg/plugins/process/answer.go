package process

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// errMalformed is wrapped by errors about the form of an answer.
var errMalformed = errors.New("malformed answer")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// decode converts the answer to a batch of n deltas. The error wraps errMalformed or errTooMuch. An
// invalid event fails only its delta.
func decode(answer *pluginv1.HandleResponse, n int, limits *limitsConfig) ([]plugins.Result, error) {
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

// result converts the result of one delta.
func (l *limitsConfig) result(r *pluginv1.Result) (plugins.Result, error) {
	message := printable.Text(r.GetMessage(), int(l.Message))
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
		return plugins.Result{Verdict: plugins.Retry, Err: plugins.Postpone(reason(message, "the plugin asks for another try"), after)}, nil
	case pluginv1.Verdict_VERDICT_FAIL:
		return plugins.Result{Verdict: plugins.Fail, Err: reason(message, "the plugin failed it, without a message")}, nil
	}
	return plugins.Result{}, malformed("there is no verdict %d", verdict)
}

// longestRetry is the maximum delay of a retry, the same as for a guest in WebAssembly.
const longestRetry = 49 * 24 * time.Hour

func reason(message, otherwise string) error {
	if message == "" {
		message = otherwise
	}
	return errors.New(message)
}

// ok returns the result of a delta that is ok.
func (l *limitsConfig) ok(given []*pluginv1.Event) plugins.Result {
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

// checkEvent returns the mistake in an event. The error never quotes the event.
func (l *limitsConfig) checkEvent(e *pluginv1.Event) error {
	if len(e.GetData()) == 0 {
		return errors.New("it has no data")
	}
	if err := rawjson.Check(string(e.GetData())); err != nil {
		return err
	}
	return errors.Join(l.attribute("type", e.GetType()), l.attribute("subject", e.GetSubject()))
}

// attribute checks a CloudEvents attribute, which may be absent.
func (l *limitsConfig) attribute(name, s string) error {
	switch {
	case len(s) > int(l.Message):
		return fmt.Errorf("%s has %d bytes, at most %d (limits.message)", name, len(s), l.Message)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("%s contains a control character", name)
	}
	return nil
}

// deltaOverhead is the maximum size of a delta in a message without its texts.
const deltaOverhead = 128

// deltaSize returns the maximum size of d in a message, in bytes.
func deltaSize(d *event.Delta) int {
	o := d.Object()
	r := o.Resource()
	n := deltaOverhead + len(d.Source) + len(r.Cluster) + len(r.Group) + len(r.Version) + len(r.Resource) + len(r.Kind)
	n += len(o.Key().Namespace) + len(o.Key().Name) + len(o.UID()) + len(o.ResourceVersion()) + len(d.TraceParent) + len(d.With)
	if e := d.Event; e != nil {
		n += deltaOverhead + len(e.ID) + len(e.Type) + len(e.Source) + len(e.Subject) + len(e.Route) + len(e.Data)
	}
	for _, state := range []*event.Object{d.New, d.Old} {
		if state != nil {
			n += len(state.JSON())
		}
	}
	return n
}

// encode returns the message of a batch. It refers to the bytes of the objects, which are
// immutable.
func encode(batch []*event.Delta) []*pluginv1.Delta {
	deltas, all := make([]*pluginv1.Delta, len(batch)), make([]pluginv1.Delta, len(batch))
	for i, d := range batch {
		o, to := d.Object(), &all[i]
		r := o.Resource()
		to.Op = pluginv1.Op(d.Op)
		to.Source, to.Cluster, to.Resource, to.Kind = d.Source, r.Cluster, r.String(), r.Kind
		to.Namespace, to.Name, to.Uid, to.ResourceVersion = o.Key().Namespace, o.Key().Name, o.UID(), o.ResourceVersion()
		to.Initial, to.Stale, to.Redelivered, to.SeenUnixNano = d.Initial, d.Stale, d.Redelivered, d.Seen.UnixNano()
		to.Late, to.Repeat, to.Suppressed, to.TraceParent, to.With = d.Late, d.Repeat > 0, int64(d.Suppressed), d.TraceParent, d.With
		if !d.Since.IsZero() {
			to.SinceUnixNano = d.Since.UnixNano()
		}
		if e := d.Event; e != nil {
			to.Event = &pluginv1.RouteEvent{
				Id: e.ID, Type: e.Type, Source: e.Source, Subject: e.Subject, Route: e.Route, TimeUnixNano: e.Time.UnixNano(), Data: e.Data,
			}
		}
		if d.New != nil {
			to.NewObject = d.New.JSON()
		}
		if d.Old != nil {
			to.OldObject = d.Old.JSON()
		}
		deltas[i] = to
	}
	return deltas
}
