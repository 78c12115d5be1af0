package work_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/owner"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// The stream is deleted while the leader runs: it is made again, and later events are stored.
func TestOutboxStreamDeleted(t *testing.T) {
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	o := leader(t, conn, "a")
	s := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1})
	write(t, s, events(t, "r", 1, "x"))
	must.Succeed(t, conn.JS.DeleteStream(patient(t), conn.Names.Work()))
	write(t, s, events(t, "r", 2, "x"))
	expect(t, conn, "r/1/0 x@2")
}

// The bucket with the entry of a route is made again: the entry is written again, behind the
// generations that have messages.
func TestOutboxEntryLost(t *testing.T) {
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	write(t, leader(t, conn, "a").Sink(work.Route{ID: "r", Hash: "h", Partitions: 4}), events(t, "r", 1, "x"))
	o := leader(t, conn, "b")
	s := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1})
	o.Use([]*work.Sink{s})
	write(t, s, events(t, "r", 2, "x"))
	must.Succeed(t, conn.JS.DeleteKeyValue(patient(t), conn.Names.Owners()))
	must.Succeed(t, conn.Ensure(patient(t)))
	must.Succeed(t, o.Audit(patient(t)))
	write(t, s, events(t, "r", 3, "x"))
	first := work.Partition(events(t, "r", 1, "x")[0].OrderKey(), 4)
	expect(t, conn, fmt.Sprintf("r/1/%d x@1", first), "r/2/0 x@2", "r/3/0 x@3")
	entry, err := owner.Announced(patient(t), conn.NATS, conn.Names.Owners(), fleet.Token("r"))
	must.Succeed(t, err)
	if want := []owner.Generation{{Number: 1, Partitions: first + 1}, {Number: 2, Partitions: 1}, {Number: 3, Partitions: 1}}; !slices.Equal(entry.Generations, want) || entry.Hash != "h" {
		t.Errorf("the entry is %v, want %v", entry, want)
	}
}

// The sinks are unavailable while the stream has settings with which it loses messages.
func TestOutboxRefuse(t *testing.T) {
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	o := leader(t, conn, "a")
	s := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1})
	write(t, s, events(t, "r", 1, "x"))
	o.Refuse("altered")
	if errs := s.Write(patient(t), events(t, "r", 2, "x")); len(errs) != 1 || errs[0] == nil {
		t.Errorf("got %v", errs)
	} else {
		must.Fail(t, errs[0], "altered")
	}
	o.Refuse("")
	ctx := patient(t)
	sinktest.Until(t, "the sink is available", func() bool { return s.Write(ctx, events(t, "r", 3, "x")) == nil })
	expect(t, conn, "r/1/0 x@1", "r/1/0 x@3")
}

// The stream is purged except for its lead record: the leader says so once, and goes on. The deltas
// may be those of the leader before.
func TestOutboxPurged(t *testing.T) {
	// Guarantee: fleet-streams-altered
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	write(t, leader(t, conn, "a").Sink(work.Route{ID: "r", Hash: "h", Partitions: 1}), events(t, "r", 1, "x"))
	var log logged.Buffer
	o := work.NewOutbox(work.OutboxConfig{Conn: conn, Holder: "b", Log: slog.New(slog.NewTextHandler(&log, nil))})
	run(t, o)
	s := o.Sink(work.Route{ID: "r", Hash: "other", Partitions: 1}) // the record shows that the stream is open
	o.Use([]*work.Sink{s})
	ctx := patient(t)
	sinktest.Until(t, "the route is announced", func() bool {
		record, err := owner.Announced(ctx, conn.NATS, conn.Names.Owners(), fleet.Token("r"))
		return err == nil && record.Hash == "other"
	})
	for n := 1; n <= 2; n++ {
		if n > 1 {
			write(t, s, events(t, "r", n, "x"))
		}
		must.Succeed(t, o.Audit(patient(t)))
		if got := strings.Count(log.String(), "the deltas that waited there are lost"); got != n-1 {
			t.Fatalf("before purge %d: %s", n, log.String())
		}
		stream, err := conn.JS.Stream(patient(t), conn.Names.Work())
		must.Succeed(t, err)
		must.Succeed(t, stream.Purge(patient(t), jetstream.WithPurgeKeep(1)))
		for range 2 {
			must.Succeed(t, o.Audit(patient(t)))
		}
	}
	if text := log.String(); strings.Count(text, "the deltas that waited there are lost") != 2 || !strings.Contains(text, "router resync -route ROUTE") {
		t.Errorf("the log is %s", text)
	}
	write(t, s, events(t, "r", 3, "x"))
	expect(t, conn, "r/1/0 x@3")
}

// All messages of a route are counted, also if more keys wait than one answer of the server has:
// the generations of an entry that is made again come from the same answers.
func TestWaitingManyKeys(t *testing.T) {
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	must.Succeed(t, conn.Ensure(patient(t)))
	const keys = 100_500
	for n := range keys - 1 {
		must.Succeed(t, conn.NATS.Publish(conn.Names.WorkSubject("r", 1, n%7, fmt.Sprint(n)), nil))
		if n%1000 == 0 { // the server may be slower than the test
			must.Succeed(t, conn.NATS.FlushWithContext(patient(t)))
		}
	}
	_, err := conn.JS.Publish(patient(t), conn.Names.WorkSubject("r", 1, 0, "last"), nil) // all are stored
	must.Succeed(t, err)
	if n, err := work.Waiting(patient(t), conn, "r"); err != nil || n != keys {
		t.Errorf("%d messages wait: %v", n, err)
	}
}

// A record names the configuration of a route as long as the present configuration has workers for
// it, or the deltas of before are not handled.
func TestOutboxWithdrawn(t *testing.T) {
	// Guarantee: workers-config
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	hash := func() string {
		record, err := owner.Announced(patient(t), conn.NATS, conn.Names.Owners(), fleet.Token("r"))
		must.Succeed(t, err)
		return record.Hash
	}
	o := leader(t, conn, "a")
	r, other := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 2}), o.Sink(work.Route{ID: "other", Hash: "h", Partitions: 1})
	o.Use([]*work.Sink{r, other})
	write(t, r, events(t, "r", 1, "x"))
	o.Use([]*work.Sink{other})
	sinktest.Until(t, "the route is withdrawn", func() bool { return hash() == "" })
	r = o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 2})
	o.Use([]*work.Sink{r, other})
	sinktest.Until(t, "the route is announced again", func() bool { return hash() == "h" })

	o = leader(t, conn, "b") // it was started with a configuration without the route
	other = o.Sink(work.Route{ID: "other", Hash: "h", Partitions: 1})
	o.Use([]*work.Sink{other})
	write(t, other, events(t, "other", 1, "x"))
	must.Succeed(t, o.Audit(patient(t)))
	write(t, other, events(t, "other", 2, "x")) // after all announcements
	if hash() != "h" || len(o.Stranded()) != 1 {
		t.Errorf("a route with deltas is withdrawn: hash %q, stranded %v", hash(), o.Stranded())
	}
	stream, err := conn.JS.Stream(patient(t), conn.Names.Work())
	must.Succeed(t, err)
	must.Succeed(t, stream.Purge(patient(t), jetstream.WithPurgeSubject(conn.Names.WorkRoute("r"))))
	must.Succeed(t, o.Audit(patient(t)))
	sinktest.Until(t, "the route without deltas is withdrawn", func() bool { return hash() == "" })
	_, err = conn.JS.Publish(patient(t), "$KV."+conn.Names.Owners()+"."+fleet.Token("other"), []byte(`{"id":"other","generations":[{"number":1,"partitions":1}]}`))
	must.Succeed(t, err)
	must.Succeed(t, o.Audit(patient(t)))
	sinktest.Until(t, "an altered entry is written again", func() bool {
		record, err := owner.Announced(patient(t), conn.NATS, conn.Names.Owners(), fleet.Token("other"))
		return err == nil && record.Hash == "h"
	})
}
