package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// permits is a permission that ends. It counts the calls that began without it.
type permits struct {
	ended    atomic.Bool
	violated atomic.Int32
}

func (p *permits) permit() bool { return !p.ended.Load() }

// check is called by a handler or a sink at its begin.
func (p *permits) check() {
	if p.ended.Load() {
		p.violated.Add(1)
	}
}

// TestPermit: after the permission has ended, no call of a handler or a sink begins, and all deltas
// that are not delivered stay pending, at any age: none is lost or becomes a dead letter, and the
// sinks do not count as unavailable. If the permission returns, they are delivered in order.
func TestPermit(t *testing.T) {
	// Guarantee: fleet-no-late-delivery
	for name, ends := range map[string]func(p *permits, at string){
		"before":               func(p *permits, at string) { p.ended.Store(at == "start") },
		"in the handler":       func(p *permits, at string) { p.ended.Store(at == "handler") },
		"between the sinks":    func(p *permits, at string) { p.ended.Store(at == "first") },
		"after a failed write": func(p *permits, at string) { p.ended.Store(at == "failing") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, once := &permits{}, map[string]*sync.Once{"start": {}, "handler": {}, "first": {}, "failing": {}}
				at := func(what string) { once[what].Do(func() { ends(p, what) }) }
				first := &recordingSink{before: func(context.Context) { p.check(); at("first") }}
				second := &recordingSink{before: func(context.Context) { p.check() }, refuse: func(event.Event) error {
					if at("failing"); p.ended.Load() {
						return errors.New("down")
					}
					return nil
				}}
				handler := handleEach(func(d *event.Delta) plugins.Result { return ok(d) })
				checked := handlerFunc(func(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
					p.check()
					at("handler")
					return handler(ctx, batch)
				})
				// One worker: a call that another one has permission for may begin when the permission ends.
				r := spec.Settings{Sinks: to(first, second), Handler: checked, Concurrency: 1, Retry: spec.Retry{MaxAge: time.Hour}}
				b := openAs(t, pipeline.Config{Permit: p.permit}, r)
				at("start")
				b.Start(t.Context())
				for i := range 4 {
					b.admit(delta(t, event.Added, fmt.Sprint("o", i), 0, i+1))
					b.admit(delta(t, event.Updated, fmt.Sprint("o", i), i+1, i+11))
				}
				pass(2 * time.Hour)
				if n := p.violated.Load(); n > 0 {
					t.Errorf("%d calls began without permission", n)
				}
				if !p.ended.Load() {
					t.Fatal("the permission did not end")
				}
				if len(b.Unavailable()) > 0 || len(b.letters.got()) > 0 || b.Pending("route0") == 0 {
					t.Errorf("unavailable %v, dead letters %v, pending %d", b.Unavailable(), b.letters.got(), b.Pending("route0"))
				}

				p.ended.Store(false)
				pass(time.Minute)
				if n := b.Pending("route0"); n != 0 || len(first.got()) != 8 || len(second.got()) != 8 {
					t.Errorf("pending %d, delivered %q and %q", n, first.got(), second.got())
				}
				equal(t, "dead letters", b.letters.got())
				last := map[string]string{}
				for _, e := range first.events {
					if e.K8sResourceVersion < last[e.Subject] && len(e.K8sResourceVersion) <= len(last[e.Subject]) {
						t.Errorf("%s at version %s after %s", e.Subject, e.K8sResourceVersion, last[e.Subject])
					}
					last[e.Subject] = e.K8sResourceVersion
				}
			})
		})
	}
}

// TestSettleForAnother: the deliveries that run are finished, no further one begins, and the rest
// stays pending for the process that goes on.
func TestSettleForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := blockingSink()
		b := start(t, spec.Settings{Sinks: to(s), Batch: spec.Batch{Size: 1}, Concurrency: 1})
		for i := range 3 {
			b.admit(delta(t, event.Added, fmt.Sprint("o", i), 0, i+1))
		}
		pass(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := pipeline.Settle(ctx, b.Pipeline); err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it did not wait for the delivery that runs: %v", err)
		}
		release()
		if err := pipeline.Settle(t.Context(), b.Pipeline); err != nil {
			t.Error(err)
		}
		pass(time.Hour)
		if n := b.Pending("route0"); n != 2 || len(s.got()) != 1 {
			t.Errorf("pending %d, delivered %q", n, s.got())
		}
	})
}
