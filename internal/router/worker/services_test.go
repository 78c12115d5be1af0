package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// counter is a handler that counts the deltas of each object, and all of them, in its kv, and looks
// an object up for each. Like a guest, it commits once in a call.
type counter struct{ env plugins.HandlerEnv }

func (c counter) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	o := kv.NewOverlay(c.env.KV, timer.Real(), 1<<20)
	var err error
	for i, d := range batch {
		var data string
		if data, err = c.count(ctx, o, d); err != nil {
			break
		}
		results[i] = plugins.Result{Events: []plugins.Emit{{Data: []byte(data)}}}
	}
	if err == nil {
		err = o.Commit()
	}
	if err != nil {
		for i := range results {
			results[i] = plugins.Result{Verdict: plugins.Retry, Err: err}
		}
	}
	return results, nil
}

func (c counter) count(ctx context.Context, o *kv.Overlay, d *event.Delta) (data string, err error) {
	_, found, err := plugins.Ask(ctx, c.env.Lookup, plugins.LookupQuery{Source: "pods", Count: true, Deltas: []*event.Delta{d}})
	if err != nil {
		return "", err
	}
	for _, key := range []string{"all", d.Key().Name} {
		value, _ := o.Get(key)
		n, _ := strconv.Atoi(string(value))
		if err := o.Set(key, []byte(strconv.Itoa(n+1)), 0); err != nil {
			return "", err
		}
		data = strconv.Itoa(n + 1)
	}
	return fmt.Sprintf(`{"n":%s,"found":%d}`, data, found), nil
}

func (counter) Close(context.Context) error { return nil }

// answers are the caches of the leader.
type answers struct{}

func (answers) LookUp(_ context.Context, r *lookup.Request) (*lookup.Answer, error) {
	if r.Handler != "counter" || len(r.Needs) != 1 {
		return nil, errors.New("unexpected request")
	}
	return &lookup.Answer{Count: 7}, nil
}

const counting = `  - name: counted
    from: [pods]
    to: [receiver]
    handler: counter
    retry: {attempts: 1, backoff: 10ms}
    workers: {partitions: 4, pending: 32}
handlers:
  counter: {count: {}}
`

// TestServices shows that handlers on several workers share their kv, although all calls change one
// value of it, that a new owner of a partition sees the values of the one before, and that a
// look-up waits for a leader. None of this costs an attempt: the route has one.
func TestServices(t *testing.T) {
	// Guarantee: workers-kv, workers-lookup
	t.Parallel()
	handlers := []plugins.HandlerKind{fakekind.Handler{
		Definition: fakekind.Define("count"),
		OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
			return counter{env}, nil
		},
	}}
	f := newFleet(t, 4, counting, handlers...)
	first := f.start()
	f.start()
	s := f.sink("counted")
	names := []string{"a", "b", "c", "d", "e", "f"}
	f.publish(s, 1, names...)

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- lookup.Serve(ctx, f.conn, answers{}) }()
	t.Cleanup(func() { cancel(); must.Report(t, <-served) })

	const versions = 6
	for v := 2; v <= versions; v++ {
		f.publish(s, v, names...)
		if v == 3 {
			f.receiver.until(t, "some events", func(events []event.Event) bool { return len(events) >= len(names) })
			first()
		}
	}
	f.receiver.until(t, "all events", func(events []event.Event) bool { return len(events) >= versions*len(names) })
	f.receiver.mu.Lock()
	defer f.receiver.mu.Unlock()
	count := map[string]int{}
	for _, e := range f.receiver.events {
		count[e.Subject]++
		if want := fmt.Sprintf(`{"n":%d,"found":7}`, count[e.Subject]); string(e.Data) != want {
			t.Errorf("event %d of %s has %s", count[e.Subject], e.Subject, e.Data)
		}
	}
	if len(count) != len(names) || len(f.receiver.events) != versions*len(names) {
		t.Errorf("%v", count)
	}
}
