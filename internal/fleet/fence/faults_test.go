package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// publish calls Publish in the background.
func publish(ctx context.Context, p *fence.Publisher, b []*nats.Msg) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := p.Publish(ctx, b, nil)
		done <- err
	}()
	return done
}

// The answer to a batch is lost: the batch was stored, and is not stored again.
func TestAnswerLost(t *testing.T) {
	// Guarantee: fleet-fenced
	t.Parallel()
	server := embedded.Start(t, nil)
	s := stream(t, connect(t, server.ClientURL()), 1)
	wire := sinktest.NewWire(t, server.Addr().String())
	p := open(t, connect(t, wire.Addr().String()), "first")
	wire.Mute()
	done := publish(patient(t), p, batch("a", 3))
	until(t, "the batch is stored", func() bool { return last(t, s) == 5 })
	wire.Cut(server.Addr().String())
	must.Succeed(t, <-done)
	_, err := p.Publish(patient(t), batch("b", 1), nil)
	must.Succeed(t, err)
	equal(t, stored(t, s), []string{"a-0", "a-1", "a-2", "b-0"})
}

// A caller does not wait for the answer to its batch, which was stored. The next batch has other
// messages and is stored too.
func TestAnswerNotAwaited(t *testing.T) {
	t.Parallel()
	server := embedded.Start(t, nil)
	s := stream(t, connect(t, server.ClientURL()), 1)
	wire := sinktest.NewWire(t, server.Addr().String())
	p := open(t, connect(t, wire.Addr().String()), "first")
	wire.Mute()
	ctx, cancel := context.WithCancel(t.Context())
	done := publish(ctx, p, batch("a", 3))
	until(t, "the batch is stored", func() bool { return last(t, s) == 5 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the first batch: %v", err)
	}
	wire.Cut(server.Addr().String())
	_, err := p.Publish(patient(t), batch("b", 2), nil)
	must.Succeed(t, err)
	equal(t, stored(t, s), []string{"a-0", "a-1", "a-2", "b-0", "b-1"})
}

// The connection breaks at each place of a batch. It is stored once.
func TestConnectionBreaks(t *testing.T) {
	t.Parallel()
	server := embedded.Start(t, nil)
	s := stream(t, connect(t, server.ClientURL()), 1)
	wire := sinktest.NewWire(t, server.Addr().String())
	p := open(t, connect(t, wire.Addr().String()), "first")
	var want []string
	for bytes, whole := 1, false; !whole; bytes += 311 {
		b := batch(fmt.Sprint(bytes), 5)
		cut := wire.CutAfter(bytes)
		done := publish(patient(t), p, b)
		select {
		case <-cut:
			wire.Cut(server.Addr().String())
			must.Succeed(t, <-done)
		case err := <-done: // the batch has fewer bytes
			must.Succeed(t, err)
			whole = true
		}
		want = append(want, bodies(b)...)
	}
	if len(want) < 5*3 {
		t.Errorf("the connection broke at fewer than three places")
	}
	equal(t, stored(t, s), want)
}

// The connection breaks at each place of Open. If the lead record was stored and its answer lost,
// Open does not depose itself.
func TestOpenBreaks(t *testing.T) {
	t.Parallel()
	server := embedded.Start(t, nil)
	s := stream(t, connect(t, server.ClientURL()), 1)
	wire := sinktest.NewWire(t, server.Addr().String())
	conn := connect(t, wire.Addr().String())
	must.Succeed(t, conn.FlushWithContext(patient(t)))
	term := uint64(1)
	for bytes, whole := 1, false; !whole; bytes, term = bytes+211, term+1 {
		cut := wire.CutAfter(bytes)
		done := make(chan *fence.Publisher, 1)
		go func() {
			p, before, err := fence.Open(patient(t), config(conn, fmt.Sprint(term)))
			if err != nil || p.Term() != term || before.Term != term-1 {
				t.Errorf("term %d: %+v, %v", term, before, err)
			}
			done <- p
		}()
		var p *fence.Publisher
		select {
		case <-cut:
			wire.Cut(server.Addr().String())
			p = <-done
		case p = <-done:
			whole = true
			wire.CutAfter(0)
		}
		_, err := p.Publish(patient(t), batch("a", 1), nil)
		must.Succeed(t, err)
	}
	if n := len(stored(t, s)); n != int(term-1) || n < 4 {
		t.Errorf("%d messages in %d terms", n, term-1)
	}
}

// The server that leads the stream is killed, then paused, while batches are published.
func TestStreamLeaderGone(t *testing.T) {
	// Guarantee: fleet-fenced
	t.Parallel()
	servers := natstest.Start(t, natstest.Config{Servers: 3})
	conn, js := servers.Connect(t)
	s := stream(t, conn, 3)
	p := open(t, conn, "first")
	var want []string
	add := func(name string, batches int) {
		for i := range batches {
			b := batch(fmt.Sprint(name, "-", i), 10)
			_, err := p.Publish(patient(t), b, nil)
			must.Succeed(t, err)
			want = append(want, bodies(b)...)
		}
	}
	// No part of the test waits for an election that a missing server may hold up: the server is
	// back soon, whatever the others do.
	during := func(name string, fault, end func(*natstest.Server)) {
		servers.WaitReady(t)
		leader := servers.Leader(t, js, "W")
		done, ended := make(chan struct{}), make(chan struct{})
		fault(leader)
		go func() {
			defer close(ended)
			select {
			case <-done:
			case <-time.After(5 * time.Second):
			}
			end(leader)
		}()
		add(name, 20)
		close(done)
		<-ended
	}
	add("before", 20)
	during("killed", (*natstest.Server).Kill, func(s *natstest.Server) { must.Report(t, s.Restart()) })
	during("paused", (*natstest.Server).Pause, (*natstest.Server).Continue)

	second := open(t, conn, "second")
	if _, err := p.Publish(patient(t), batch("late", 1), nil); !errors.Is(err, fence.ErrDeposed) {
		t.Errorf("the first publisher got %v", err)
	}
	b := batch("second", 10)
	_, err := second.Publish(patient(t), b, nil)
	must.Succeed(t, err)
	equal(t, stored(t, s), append(want, bodies(b)...))
}
