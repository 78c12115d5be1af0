package fleet_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

// restricted starts a server with a user for each text of permissions, called u0, u1 and so on, and
// an administrator.
func restricted(t *testing.T, permissions ...string) *server.Server {
	t.Helper()
	var users strings.Builder
	for i, p := range permissions {
		fmt.Fprintf(&users, "{user: u%d, password: p, %s}\n", i, p)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\njetstream { store_dir: %q, max_file: 1G }\nauthorization { users [ {user: admin, password: p}\n%s ] }\n", t.TempDir(), &users)
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	options, err := server.ProcessConfigFile(file)
	must.Succeed(t, err)
	return embedded.Start(t, func(o *server.Options) { *o = *options; o.NoLog, o.NoSigs = true, true })
}

// as returns the mapping below nats for a user of the server.
func as(s *server.Server, user string) string {
	return fmt.Sprintf("{servers: [%q], credentials: {user: %s, password: p}}", s.ClientURL(), user)
}

// TestPermissionsSuffice: users with exactly the printed permissions can do all that a member and a
// worker do.
func TestPermissionsSuffice(t *testing.T) {
	t.Parallel()
	names := fleet.NamesOf("test")
	s := restricted(t, fleet.Permissions(names, fleet.Member), fleet.Permissions(names, fleet.Worker))
	member, worker := connect(t, as(s, "u0")), connectWorker(t, as(s, "u1"))
	must.Succeed(t, member.Ensure(t.Context()))
	for user, role := range map[string]fleet.Role{"u0": fleet.Member, "u1": fleet.Worker} {
		found, err := fleet.Probe(t.Context(), section(t, as(s, user)), role)
		if must.Succeed(t, err); len(found.Mistakes)+len(found.Warnings) > 0 {
			t.Errorf("%s: %q", role, found)
		}
	}
	for _, c := range []*fleet.Conn{member, worker} {
		useBucket(t, c, names.Owners())
		useBucket(t, c, names.Members())
	}
	useBucket(t, worker, names.Values())
	replicate(t, member)
	work(t, member, worker)
	letters(t, member, worker)
	ask(t, member, worker)
	for _, c := range []*fleet.Conn{member, worker} {
		must.Report(t, c.NATS.LastError())
	}
}

// TestPermissionsNeeded: without any one of the permissions, Probe names exactly that one.
func TestPermissionsNeeded(t *testing.T) {
	t.Parallel()
	names := fleet.NamesOf("test")
	text := fleet.Permissions(names, fleet.Member, fleet.Worker)
	var subjects, texts []string
	lines, list := strings.Split(text, "\n"), "publish"
	for i, line := range lines {
		if strings.Contains(line, "subscribe {") {
			list = "subscribe"
		}
		subject := strings.Trim(line, ` "`)
		if !strings.HasPrefix(line, `    "`) {
			continue
		}
		subjects = append(subjects, list+" "+subject)
		texts = append(texts, strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "\n"))
	}
	if len(subjects) < 20 {
		t.Fatalf("only %d permissions:\n%s", len(subjects), text)
	}
	s := restricted(t, texts...)
	admin := connect(t, as(s, "admin"))
	must.Succeed(t, admin.Ensure(t.Context()))
	for i, subject := range subjects {
		found := probe(t, as(s, fmt.Sprintf("u%d", i)))
		if want := "the router lacks permissions in NATS: " + subject; len(found.Mistakes) != 1 || found.Mistakes[0] != want {
			t.Errorf("without %q: got %q", subject, found.Mistakes)
		}
	}
}

// TestProbeChangesNothing: a user with all rights finds nothing missing, and each message of each
// stream is still there.
func TestProbeChangesNothing(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, nil)
	c := connect(t, "{servers: ["+s.ClientURL()+"]}")
	must.Succeed(t, c.Ensure(t.Context()))
	n := c.Names
	publish(t, c, n.Work(), n.WorkLead(), n.WorkSubject("r", 1, 2, "default/web"))
	publish(t, c, n.Cuts(), n.CutsLead(), n.Frame("1"))
	_, err := c.JS.Publish(t.Context(), n.DeadLetter("r"), []byte("1"))
	must.Succeed(t, err)
	for _, bucket := range []string{n.Owners(), n.Members(), n.Values()} {
		kv, err := c.JS.KeyValue(t.Context(), bucket)
		must.Succeed(t, err)
		_, err = kv.Create(t.Context(), "a", nil)
		must.Succeed(t, err)
	}
	objects, err := c.JS.ObjectStore(t.Context(), n.Snapshots())
	must.Succeed(t, err)
	_, err = objects.PutString(t.Context(), "a", "text")
	must.Succeed(t, err)
	states := func() map[string]jetstream.StreamState {
		all := map[string]jetstream.StreamState{}
		for info := range c.JS.ListStreams(t.Context()).Info() {
			info.State.FirstTime, info.State.LastTime = time.Time{}, time.Time{}
			if all[info.Config.Name] = info.State; info.State.Msgs == 0 {
				t.Errorf("stream %s is empty", info.Config.Name)
			}
		}
		return all
	}
	before := states()
	if found := probe(t, "{servers: ["+s.ClientURL()+"]}"); len(found.Mistakes)+len(found.Warnings) > 0 {
		t.Error(found)
	}
	if after := states(); len(after) != 7 || !reflect.DeepEqual(after, before) {
		t.Errorf("before\n%+v\nafter\n%+v", before, after)
	}
}

// useBucket does all operations with a KV bucket.
func useBucket(t *testing.T, c *fleet.Conn, bucket string) {
	t.Helper()
	kv, err := c.JS.KeyValue(t.Context(), bucket)
	must.Succeed(t, err)
	w, err := kv.WatchAll(t.Context())
	must.Succeed(t, err)
	for entry := range w.Updates() {
		if entry == nil {
			break
		}
	}
	revision, err := kv.Create(t.Context(), "a.b", []byte("1"))
	must.Succeed(t, err)
	_, err = kv.Update(t.Context(), "a.b", []byte("2"), revision)
	must.Succeed(t, err)
	_, err = kv.Put(t.Context(), "a.b", []byte("3"))
	must.Succeed(t, err)
	for entry := range w.Updates() {
		if string(entry.Value()) == "3" {
			break
		}
	}
	must.Succeed(t, w.Stop())
	_, err = kv.GetRevision(t.Context(), "a.b", revision+2)
	must.Succeed(t, err)
	_, err = kv.Get(t.Context(), "a.b")
	must.Succeed(t, err)
	must.Succeed(t, kv.Purge(t.Context(), "a.b"))
	must.Succeed(t, kv.Delete(t.Context(), "a.b"))
}

// replicate publishes frames and a snapshot, reads them, and removes them.
func replicate(t *testing.T, c *fleet.Conn) {
	t.Helper()
	publish(t, c, c.Names.Cuts(), c.Names.CutsLead(), c.Names.Frame("1"))
	stream, err := c.JS.Stream(t.Context(), c.Names.Cuts())
	must.Succeed(t, err)
	frames, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{c.Names.Frames()}})
	must.Succeed(t, err)
	_, err = frames.Next()
	must.Succeed(t, err)
	_, err = stream.GetLastMsgForSubject(t.Context(), c.Names.CutsLead())
	must.Succeed(t, err)
	objects, err := c.JS.ObjectStore(t.Context(), c.Names.Snapshots())
	must.Succeed(t, err)
	_, err = objects.PutString(t.Context(), "1", strings.Repeat("x", 1<<20))
	must.Succeed(t, err)
	_, err = objects.GetString(t.Context(), "1")
	must.Succeed(t, err)
	_, err = objects.List(t.Context())
	must.Succeed(t, err)
	must.Succeed(t, objects.Delete(t.Context(), "1"))
	must.Succeed(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject(c.Names.Frames())))
}

// publish appends one message to a stream under its fence.
func publish(t *testing.T, c *fleet.Conn, stream, lead, subject string) {
	t.Helper()
	p, _, err := fence.Open(t.Context(), fence.Config{Conn: c.NATS, Stream: stream, Lead: lead, Holder: "a", Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	_, err = p.Publish(t.Context(), []*nats.Msg{nats.NewMsg(subject)}, nil)
	must.Succeed(t, err)
}

// work gives a delta to a worker, which handles it.
func work(t *testing.T, member, worker *fleet.Conn) {
	t.Helper()
	n := member.Names
	publish(t, member, n.Work(), n.WorkLead(), n.WorkSubject("r", 1, 2, "default/web"))
	config := jetstream.ConsumerConfig{
		Durable: n.Consumer("r", 1, 2, 3), FilterSubject: n.WorkFilter("r", 1, 2), AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 256,
	}
	consumer, err := worker.JS.CreateConsumer(t.Context(), n.Work(), config)
	must.Succeed(t, err)
	message, err := consumer.Next()
	must.Succeed(t, err)
	must.Succeed(t, message.InProgress())
	must.Succeed(t, message.DoubleAck(t.Context()))
	_, err = consumer.Info(t.Context())
	must.Succeed(t, err)
	stream, err := worker.JS.Stream(t.Context(), n.Work())
	must.Succeed(t, err)
	for name := range stream.ConsumerNames(t.Context()).Name() {
		must.Succeed(t, worker.JS.DeleteConsumer(t.Context(), n.Work(), name))
	}
	all := stream.ListConsumers(t.Context())
	for range all.Info() {
		t.Error("a consumer is left")
	}
	must.Succeed(t, all.Err())
}

// letters makes a dead letter on a worker, and removes it on a member.
func letters(t *testing.T, member, worker *fleet.Conn) {
	t.Helper()
	ack, err := worker.JS.Publish(t.Context(), worker.Names.DeadLetter("r"), []byte("1"))
	must.Succeed(t, err)
	stream, err := member.JS.Stream(t.Context(), member.Names.DeadLetters())
	must.Succeed(t, err)
	all, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	must.Succeed(t, err)
	_, err = all.Next()
	must.Succeed(t, err)
	_, err = stream.GetMsg(t.Context(), ack.Sequence)
	must.Succeed(t, err)
	must.Succeed(t, stream.DeleteMsg(t.Context(), ack.Sequence))
}

// ask sends a look-up to the leader.
func ask(t *testing.T, member, worker *fleet.Conn) {
	t.Helper()
	sub, err := member.NATS.Subscribe(member.Names.Lookup(), func(m *nats.Msg) { _ = m.Respond([]byte("yes")) })
	must.Succeed(t, err)
	must.Succeed(t, member.NATS.Flush())
	answer, err := worker.NATS.Request(worker.Names.Lookup(), nil, patience)
	if must.Succeed(t, err); string(answer.Data) != "yes" {
		t.Errorf("got %q", answer.Data)
	}
	must.Succeed(t, sub.Unsubscribe())
}
