package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

func head(all []string) []string { return all[:min(len(all), 12)] }

func equal(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%d messages are stored, want %d; from number %d on %q, want %q", len(got), len(want), i, head(got[min(i, len(got)):]), head(want[min(i, len(want)):]))
		}
	}
}

// A publisher whose stream was opened by another one stores nothing more.
func TestDeposed(t *testing.T) {
	// Guarantee: fleet-fenced
	t.Parallel()
	conn := connect(t, embedded.Start(t, nil).ClientURL())
	s := stream(t, conn, 1)
	first := open(t, conn, "first")
	_, err := first.Publish(patient(t), batch("a", 3), nil)
	must.Succeed(t, err)

	second, before, err := fence.Open(patient(t), config(conn, "second"))
	must.Succeed(t, err)
	if before.Holder != "first" || before.Term != 1 || before.Batch != 1 || second.Term() != 2 {
		t.Errorf("term %d after %+v", second.Term(), before)
	}
	for range 2 {
		if _, err = first.Publish(patient(t), batch("b", 3), nil); !errors.Is(err, fence.ErrDeposed) {
			t.Errorf("the first publisher got %v", err)
		}
	}
	select {
	case <-first.Deposed():
	default:
		t.Error("Deposed is open")
	}
	_, err = second.Publish(patient(t), batch("c", 2), []byte("note"))
	must.Succeed(t, err)
	equal(t, stored(t, s), []string{"a-0", "a-1", "a-2", "c-0", "c-1"})
	_, before, err = fence.Open(patient(t), config(conn, "third"))
	must.Succeed(t, err)
	if before.Holder != "second" || string(before.Note) != "note" {
		t.Errorf("the third publisher found %+v", before)
	}
}

// Many publishers open the stream while each other's batches are in flight. In the stream, the
// batches of a term never follow those of a later one. The batch in flight is stored if an attempt
// had no answer in time.
func TestDeposedInFlight(t *testing.T) {
	// Guarantee: fleet-fenced
	t.Parallel()
	conn := connect(t, embedded.Start(t, nil).ClientURL())
	s := stream(t, conn, 1)
	var all sync.WaitGroup
	var want []string
	for term := range 8 {
		p := open(t, conn, fmt.Sprint(term))
		began := make(chan struct{})
		var mine, inFlight []string
		all.Go(func() {
			for i := 0; ; i++ {
				b := batch(fmt.Sprintf("%d-%d", term, i), 20)
				if _, err := p.Publish(patient(t), b, nil); err != nil {
					if inFlight = bodies(b); !errors.Is(err, fence.ErrDeposed) {
						t.Error(err)
					}
					return
				}
				if mine = append(mine, bodies(b)...); i == 3 {
					close(began)
				}
			}
		})
		<-began
		next, _, err := fence.Open(patient(t), config(conn, "between"))
		must.Succeed(t, err)
		if next.Term() != uint64(2*term+2) {
			t.Errorf("term %d after %d", next.Term(), 2*term)
		}
		all.Wait()
		want = append(want, mine...)
		if kept := stored(t, s); len(kept) > len(want) {
			want = append(want, inFlight...)
		}
	}
	equal(t, stored(t, s), want)
}

// A stream that does not exist yet, or no longer, has no responders.
func TestStreamMissing(t *testing.T) {
	t.Parallel()
	conn := connect(t, embedded.Start(t, nil).ClientURL())
	opened := make(chan *fence.Publisher, 1)
	go func() {
		p, _, err := fence.Open(patient(t), config(conn, "first"))
		if err != nil {
			t.Error(err)
		}
		opened <- p
	}()
	stream(t, conn, 1)
	p := <-opened
	_, err := p.Publish(patient(t), batch("a", 2), nil)
	must.Succeed(t, err)

	js, err := jetstream.New(conn)
	must.Succeed(t, err)
	must.Succeed(t, js.DeleteStream(patient(t), "W"))
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() {
		_, err := p.Publish(ctx, batch("b", 2), nil)
		cancelled <- err
	}()
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("without the stream: %v", err)
	}
	s := stream(t, conn, 1)
	if _, err = p.Publish(patient(t), batch("c", 2), nil); !errors.Is(err, fence.ErrLeadGone) {
		t.Errorf("with a new stream: %v", err)
	}
	select {
	case <-p.Deposed():
		t.Error("a new stream deposes the publisher")
	default:
	}
	again := config(conn, "first")
	again.After = p.Term()
	p, _, err = fence.Open(patient(t), again)
	must.Succeed(t, err)
	if p.Term() != 2 {
		t.Errorf("the term is %d", p.Term())
	}
	_, err = p.Publish(patient(t), batch("c", 2), nil)
	must.Succeed(t, err)
	equal(t, stored(t, s), []string{"c-0", "c-1"})
}

// A purge by subject keeps the lead record, and the publisher goes on.
func TestPurge(t *testing.T) {
	t.Parallel()
	conn := connect(t, embedded.Start(t, nil).ClientURL())
	s := stream(t, conn, 1)
	p := open(t, conn, "first")
	_, err := p.Publish(patient(t), batch("a", 3), nil)
	must.Succeed(t, err)
	must.Succeed(t, s.Purge(patient(t), jetstream.WithPurgeSubject("w.m")))
	seq, err := p.Publish(patient(t), batch("b", 1), nil)
	must.Succeed(t, err)
	if seq != 7 { // lead, a-0 … a-2, lead, b-0, lead
		t.Errorf("the lead record has the sequence %d", seq)
	}
	equal(t, stored(t, s), []string{"b-0"})
	must.Succeed(t, s.Purge(patient(t)))
	if _, err = p.Publish(patient(t), batch("c", 1), nil); !errors.Is(err, fence.ErrLeadGone) {
		t.Errorf("without the lead record: %v", err)
	}
}

// The batches of concurrent callers are not mixed, and each caller's are in its order.
func TestConcurrentCallers(t *testing.T) {
	t.Parallel()
	conn := connect(t, embedded.Start(t, nil).ClientURL())
	s := stream(t, conn, 1)
	p := open(t, conn, "first")
	var all sync.WaitGroup
	want := map[string][]string{}
	for c := range 8 {
		name := string(rune('a' + c))
		for i := range 5 {
			want[name] = append(want[name], bodies(batch(fmt.Sprint(name, i), 3))...)
		}
		all.Go(func() {
			for i := range 5 {
				if _, err := p.Publish(patient(t), batch(fmt.Sprint(name, i), 3), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := map[string][]string{}
	kept := stored(t, s)
	for i := 0; i < len(kept); i += 3 {
		if prefix := strings.TrimSuffix(kept[i], "0"); kept[i+1] != prefix+"1" || kept[i+2] != prefix+"2" {
			t.Fatalf("a batch is torn: %q", kept[i:i+3])
		}
		got[kept[i][:1]] = append(got[kept[i][:1]], kept[i:i+3]...)
	}
	for name := range want {
		equal(t, got[name], want[name])
	}
}

// A batch that the server refuses for good does not end the publisher.
func TestRefused(t *testing.T) {
	t.Parallel()
	conn := connect(t, embedded.Start(t, func(o *server.Options) { o.MaxPayload = 1 << 20 }).ClientURL())
	s := stream(t, conn, 1)
	p := open(t, conn, "first")
	large := []*nats.Msg{{Subject: "w.m", Data: make([]byte, 2<<20)}}
	known := batch("a", 2)
	known[0].Header.Set(nats.MsgIdHdr, "1")
	_, err := p.Publish(patient(t), known, nil)
	must.Succeed(t, err)
	for name, b := range map[string][]*nats.Msg{
		"empty": nil, "too many": batch("x", fence.HardMessages+1), "payload": append(batch("x", 2), large...), "known id": known,
		"too large": slices.Repeat(large, fence.HardBytes>>21+1),
	} {
		var refused *fence.RefusedError
		if _, err := p.Publish(patient(t), b, nil); !errors.As(err, &refused) || refused.Error() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	hard := batch("h", fence.HardMessages)
	_, err = p.Publish(patient(t), hard, nil)
	must.Succeed(t, err)
	equal(t, stored(t, s), bodies(known, hard))
}
