package election

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// member returns an Elector of the sandbox, or of a proxy before it.
func member(t *testing.T, cfg *rest.Config, namespace, holder string, duration time.Duration) *Elector {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	must.Succeed(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return New(Config{
		URL: cfg.Host, Client: client, Namespace: namespace, Name: "deltarouter-test", Holder: holder, Duration: duration,
		Log: slog.New(slog.DiscardHandler),
	})
}

// acquire waits until a member leads.
func acquire(t *testing.T, e *Elector) *Leadership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l, err := e.Acquire(ctx)
	must.Succeed(t, err)
	t.Cleanup(l.Abandon)
	return l
}

// wait waits for a channel.
func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(2 * time.Minute):
		t.Fatal("still not " + what)
	}
}

// TestOneLeads: of two members one leads. If it stops cleanly, the other one follows at once, long
// before the Lease would expire; if it ends without a word, when the Lease has expired.
func TestOneLeads(t *testing.T) {
	// Guarantee: fleet-one-leader
	s, ns := sandboxtest.StartNamespace(t)
	// 40 minutes never pass in a test: what happens here does not wait for the Lease to expire
	one, two := member(t, s.RESTConfig(), ns, "one", 40*time.Minute), member(t, s.RESTConfig(), ns, "two", 40*time.Minute)
	first := acquire(t, one)
	if sent, held, err := two.try(t.Context()); held || err != nil || two.Leader() != "one" {
		t.Errorf("two took the Lease of %q, sent %v: %v, %v", two.Leader(), sent, held, err)
	}
	if !first.Permit() || first.AskedBy() != "" {
		t.Errorf("one leads: %v; asked by %q", first.Permit(), first.AskedBy())
	}
	if text := first.Deadline().String(); !strings.Contains(text, " m=") {
		t.Errorf("the deadline %s is not by the monotonic clock", text)
	}
	must.Succeed(t, first.Release(t.Context(), ""))
	if first.Permit() {
		t.Error("one leads after it has freed the Lease")
	}
	wait(t, "lost", first.Lost())
	if _, held, err := two.try(t.Context()); !held || err != nil {
		t.Errorf("two did not take the free Lease: %v", err)
	}

	// a member that ends without a word
	ns = s.Namespace(t)
	one, two = member(t, s.RESTConfig(), ns, "one", 2*time.Second), member(t, s.RESTConfig(), ns, "two", 2*time.Second)
	first = acquire(t, one)
	first.Abandon()
	second := acquire(t, two)
	if first.Permit() || !second.Permit() {
		t.Errorf("one leads: %v, two leads: %v", first.Permit(), second.Permit())
	}
}

// TestCutOff: a leader that does not reach the API server stops being the leader by its own clock,
// before another member has the Lease.
func TestCutOff(t *testing.T) {
	// Guarantee: fleet-one-leader
	for _, how := range []string{"block", "refuse"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel() // it waits for Leases to expire
			s, ns := sandboxtest.StartNamespace(t)
			proxy := s.Proxy(t)
			one, two := member(t, proxy.RESTConfig(), ns, "one", 3*time.Second), member(t, s.RESTConfig(), ns, "two", 3*time.Second)
			first := acquire(t, one)
			if proxy.Block(); how == "refuse" {
				proxy.Refuse()
			}
			second := acquire(t, two)
			if took := time.Now(); first.Permit() || !first.Deadline().Before(took) {
				t.Errorf("one leads until %s although two leads since %s", first.Deadline(), took)
			}
			wait(t, "lost", first.Lost())
			proxy.Unblock()
			// it is a member like any other now
			must.Succeed(t, second.Release(t.Context(), ""))
			if first = acquire(t, one); !first.Permit() {
				t.Error("one does not lead")
			}
		})
	}
}

// TestRenewals: a leader whose renewals succeed leads for longer than the Lease, also when an
// answer was lost and when another client has changed the Lease.
func TestRenewals(t *testing.T) {
	s, ns := sandboxtest.StartNamespace(t)
	proxy := s.Proxy(t)
	one := member(t, proxy.RESTConfig(), ns, "one", 6*time.Second)
	l := acquire(t, one)
	until := l.Deadline()
	for round := range 3 {
		switch round {
		case 1:
			proxy.Cut()
		case 2:
			_, err := one.send(t.Context(), http.MethodPatch, one.url(), map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
			must.Succeed(t, err)
		}
		tick := time.NewTicker(10 * time.Millisecond)
		for !l.Deadline().After(until) {
			select {
			case <-tick.C:
			case <-l.Lost():
				t.Fatalf("round %d: the leadership was lost", round)
			}
		}
		tick.Stop()
		until = l.Deadline()
	}
}

// TestHandover: a member asks for the leadership, and gets it before all others.
func TestHandover(t *testing.T) {
	s, ns := sandboxtest.StartNamespace(t)
	cfg := s.RESTConfig()
	one, two, three := member(t, cfg, ns, "one", 3*time.Second), member(t, cfg, ns, "two", 40*time.Minute), member(t, cfg, ns, "three", 40*time.Minute)
	must.Fail(t, two.RequestHandover(t.Context()), "there is no such Lease")
	l := acquire(t, one)
	must.Fail(t, one.RequestHandover(t.Context()), "leads already")
	must.Succeed(t, two.RequestHandover(t.Context()))
	wait(t, "asked", l.Asked())
	if l.AskedBy() != "two" {
		t.Errorf("asked by %q", l.AskedBy())
	}
	must.Succeed(t, l.Release(t.Context(), l.AskedBy()))
	if _, held, err := three.try(t.Context()); held || err != nil {
		t.Errorf("three took the Lease that was meant for two: %v", err)
	}
	must.Fail(t, three.RequestHandover(t.Context()), "nobody leads")
	acquire(t, two)
	found, err := two.read(t.Context())
	if err != nil || found.handoverTo+found.preferred != "" || found.holder != "two" || found.transitions != 1 {
		t.Errorf("the Lease is %+v, %v", found, err)
	}
}

// TestDeleted: of a deleted Lease, the former holder stops leading, and nobody takes it before the
// former one would have expired.
func TestDeleted(t *testing.T) {
	// Guarantee: fleet-one-leader
	s, ns := sandboxtest.StartNamespace(t)
	one, two := member(t, s.RESTConfig(), ns, "one", 6*time.Second), member(t, s.RESTConfig(), ns, "two", 40*time.Minute)
	l := acquire(t, one)
	_, held, err := two.try(t.Context())
	if must.Succeed(t, err); held {
		t.Fatal("two leads, too")
	}
	_, err = two.send(t.Context(), http.MethodDelete, two.url(), nil)
	must.Succeed(t, err)
	if _, held, err := two.try(t.Context()); held || err != nil {
		t.Errorf("two took the deleted Lease at once: %v", err)
	}
	wait(t, "lost", l.Lost())
}

// TestForbidden: the message says how to get the rights.
func TestForbidden(t *testing.T) {
	s, ns := sandboxtest.StartNamespace(t)
	_, _, err := member(t, s.LimitedRESTConfig(), ns, "one", time.Minute).try(t.Context())
	must.Fail(t, err, "the router may not get leases in namespace \""+ns+"\": router rbac prints the rights")
}

// TestStopWaiting: the end of the context ends the wait for the Lease.
func TestStopWaiting(t *testing.T) {
	s, ns := sandboxtest.StartNamespace(t)
	acquire(t, member(t, s.RESTConfig(), ns, "one", 40*time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	two := member(t, s.RESTConfig(), ns, "two", 40*time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if l, err := two.Acquire(ctx); l != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", l, err)
		}
	}()
	cancel()
	wait(t, "ended", done)
}
