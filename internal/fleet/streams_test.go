package fleet_test

import (
	"context"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

// TestEnsure: the streams are made once, and as buckets they are usable with nats.go.
func TestEnsure(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, nil)
	c := connect(t, "{servers: ["+s.ClientURL()+"]}")
	for range 2 {
		must.Succeed(t, c.Ensure(t.Context()))
	}
	if found := probe(t, "{servers: ["+s.ClientURL()+"]}"); len(found.Mistakes)+len(found.Warnings) > 0 {
		t.Error(found)
	}
	for _, bucket := range []string{c.Names.Owners(), c.Names.Members(), c.Names.Values()} {
		kv, err := c.JS.KeyValue(t.Context(), bucket)
		must.Succeed(t, err)
		_, err = kv.Create(t.Context(), "a.b", []byte("1"))
		must.Succeed(t, err)
		entry, err := kv.Get(t.Context(), "a.b")
		if must.Succeed(t, err); string(entry.Value()) != "1" {
			t.Errorf("%s: got %q", bucket, entry.Value())
		}
	}
	objects, err := c.JS.ObjectStore(t.Context(), c.Names.Snapshots())
	must.Succeed(t, err)
	_, err = objects.PutString(t.Context(), "a", "text")
	must.Succeed(t, err)
	if text, err := objects.GetString(t.Context(), "a"); err != nil || text != "text" {
		t.Errorf("got %q: %v", text, err)
	}
}

// TestDifferences: an existing stream is never changed, and the message names each difference.
func TestDifferences(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, nil)
	c := connect(t, "{servers: ["+s.ClientURL()+"]}")
	must.Succeed(t, c.Ensure(t.Context()))
	change := func(name string, change func(*jetstream.StreamConfig)) {
		t.Helper()
		have, err := c.JS.Stream(t.Context(), name)
		must.Succeed(t, err)
		config := have.CachedInfo().Config
		change(&config)
		_, err = c.JS.UpdateStream(t.Context(), config)
		must.Succeed(t, err)
	}
	change(c.Names.Work(), func(c *jetstream.StreamConfig) { c.AllowAtomicPublish, c.MaxBytes = false, 1<<20 })
	change(c.Names.Cuts(), func(c *jetstream.StreamConfig) { c.Compression = jetstream.NoCompression })
	change("KV_"+c.Names.Owners(), func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	change(c.Names.DeadLetters(), func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	const remedy = "; the router does not change an existing stream: change it with the nats tool, or remove it"
	want := fleet.Report{
		Mistakes: []string{
			"stream DR_test_WORK: allow_atomic is false in place of true" + remedy,
			"stream KV_dr_test_own: max_age is 1h0m0s in place of 0s" + remedy,
		},
		Warnings: []string{"stream DR_test_DLQ: max_age is 1h0m0s in place of 720h0m0s" + remedy},
	}
	if got := probe(t, "{servers: ["+s.ClientURL()+"]}"); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	must.Fail(t, c.Ensure(t.Context()), "stream DR_test_WORK: allow_atomic is false in place of true; the router does not change an existing stream")
	change(c.Names.Work(), func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true })
	must.Fail(t, c.Ensure(t.Context()), "KV_dr_test_own")
}

// TestAnother: a stream of another program with the same subjects is an error that names it.
func TestAnother(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, nil)
	c := connect(t, "{servers: ["+s.ClientURL()+"]}")
	_, err := c.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ALL", Subjects: []string{"dr.>"}})
	must.Succeed(t, err)
	must.Fail(t, c.Ensure(t.Context()), "stream DR_test_WORK: ")
}

// TestConnect: a connection is made although no server is there, and becomes ready with it.
func TestConnect(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, nil)
	url, port := s.ClientURL(), s.Addr().(*net.TCPAddr).Port
	embedded.Stop(s)
	c := connect(t, "{servers: ["+url+"]}")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(t, c.Ready(ctx), "NATS cannot be reached")
	embedded.Start(t, func(o *server.Options) { o.Port = port })
	must.Succeed(t, c.Ready(t.Context()))
	must.Succeed(t, c.Ensure(t.Context()))
}
