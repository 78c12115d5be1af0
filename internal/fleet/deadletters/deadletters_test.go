package deadletters_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/deadletters"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

// patience limits the wait of a test. A successful test does not wait so long.
const patience = time.Minute

func connect(t *testing.T, c *natstest.Cluster, log *slog.Logger, keys ...string) *fleet.Conn {
	t.Helper()
	cfg := &config.Fleet{Name: "f", NATS: config.NATS{Servers: c.URLs()}, Replicas: 1}
	for _, text := range keys {
		n, problems := config.ParseNode("test.yaml", []byte(text))
		if problems = append(problems, n.Decode(&cfg.Keys)...); len(problems) > 0 {
			t.Fatal(problems)
		}
	}
	conn, err := fleet.Connect(t.Context(), cfg, t.Name(), log)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, conn.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Succeed(t, conn.Ready(ctx))
	must.Succeed(t, conn.Ensure(ctx))
	return conn
}

func open(t *testing.T, path string) (*checkpoint.DB, *checkpoint.Letters) {
	t.Helper()
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	letters, err := db.Letters(checkpoint.LettersConfig{})
	must.Succeed(t, err)
	return db, letters
}

func letter(t *testing.T, route, name, data string) checkpoint.Letter {
	t.Helper()
	resource := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod"}
	object := func(version string) *event.Object {
		o, err := event.ParseObject(resource, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"n","uid":"u","resourceVersion":%q},"data":%q}`, name, version, data))
		must.Succeed(t, err)
		return o
	}
	return checkpoint.Letter{
		Time: time.Now(), Route: route, Sink: "hook", Error: "HTTP 400", Attempts: 3,
		Delta: &event.Delta{Source: "pods", Op: event.Updated, Old: object("1"), New: object("2"), Seen: time.Now()},
	}
}

// importing runs Import until stop is called.
func importing(t *testing.T, conn *fleet.Conn, letters *checkpoint.Letters, log *slog.Logger) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		deadletters.Import(ctx, conn, letters, log)
	}()
	return func() { cancel(); <-done }
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !sinktest.Until(t, what, ok) {
		t.FailNow()
	}
}

func names(t *testing.T, letters *checkpoint.Letters) (all []string) {
	t.Helper()
	found, err := letters.Load(letters.IDs("", 0, 0))
	must.Succeed(t, err)
	for _, l := range found {
		all = append(all, l.Route+" "+l.Delta.Key().Name)
	}
	return all
}

// TestForgedLetters: with keys, only letters that a worker has signed are imported. A letter with a
// key that the leader does not know waits until it knows the key.
func TestForgedLetters(t *testing.T) {
	// Guarantee: workers-signed
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	log := slog.New(slog.DiscardHandler)
	keys := func(workers, accept string) string {
		text := fmt.Sprintf("members: %q, workers: %q", strings.Repeat("m", 32), strings.Repeat(workers, 32))
		if accept != "" {
			text += fmt.Sprintf(", accept: {workers: %q}", strings.Repeat(accept, 32))
		}
		return "{" + text + "}"
	}
	none, signing, other := connect(t, c, log), connect(t, c, log, keys("w", "")), connect(t, c, log, keys("o", ""))
	must.Succeed(t, deadletters.Write(t.Context(), none, "r/1/hook", letter(t, "r", "evil", "")))
	must.Succeed(t, deadletters.Write(t.Context(), signing, "r/2/hook", letter(t, "r", "a", "")))
	db, letters := open(t, filepath.Join(t.TempDir(), "state"))
	stop := importing(t, signing, letters, log)
	await(t, "the signed one", func() bool { return len(letters.IDs("r", 0, 0)) == 1 })
	must.Succeed(t, deadletters.Write(t.Context(), other, "r/3/hook", letter(t, "r", "b", "")))
	stop()
	leader := connect(t, c, log, keys("w", "o"))
	stop = importing(t, leader, letters, log)
	await(t, "the one with the other key", func() bool { return len(letters.IDs("r", 0, 0)) == 2 })
	stop()
	if got, want := names(t, letters), []string{"r a", "r b"}; !slices.Equal(got, want) || signing.Refused.Count(fleet.RefusedLetter) != 1 {
		t.Errorf("got %q, want %q, and %d were refused", got, want, signing.Refused.Count(fleet.RefusedLetter))
	}
	must.Succeed(t, db.Close())
}

// TestImport shows that a leader imports each dead letter once: also those that are written again
// with the same id, or before another leader continues with the state of this one.
func TestImport(t *testing.T) {
	// Guarantee: workers-letters
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	conn := connect(t, c, slog.New(slog.DiscardHandler))
	path := filepath.Join(t.TempDir(), "state")
	for i, name := range []string{"a", "b", "b"} {
		must.Succeed(t, deadletters.Write(t.Context(), conn, fmt.Sprint("r/", min(i, 1), "/hook"), letter(t, "r", name, "")))
	}
	db, letters := open(t, path)
	stop := importing(t, conn, letters, slog.New(slog.DiscardHandler))
	await(t, "two dead letters", func() bool { return len(letters.IDs("r", 0, 0)) == 2 })
	stop()
	_, err := letters.Remove(t.Context(), letters.IDs("r", 0, 1))
	must.Succeed(t, err)
	must.Succeed(t, db.Close())

	must.Succeed(t, deadletters.Write(t.Context(), conn, "r/7/hook", letter(t, "other", "c", "")))
	db, letters = open(t, path)
	stop = importing(t, conn, letters, slog.New(slog.DiscardHandler))
	await(t, "the third dead letter", func() bool { return len(letters.IDs("other", 0, 0)) == 1 })
	if got, want := names(t, letters), []string{"r b", "other c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	stop()

	// The stream is made again: its numbers begin again, too.
	must.Succeed(t, conn.JS.DeleteStream(t.Context(), conn.Names.DeadLetters()))
	must.Succeed(t, conn.Ensure(t.Context()))
	must.Succeed(t, deadletters.Write(t.Context(), conn, "r/8/hook", letter(t, "r", "d", "")))
	stop = importing(t, conn, letters, slog.New(slog.DiscardHandler))
	await(t, "the dead letter of the new stream", func() bool { return slices.Contains(names(t, letters), "r d") })
	stop()
	must.Succeed(t, db.Close())
}

// TestOutage shows that an unreadable message and an outage of NATS do not end the import.
func TestOutage(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	c := natstest.Start(t, natstest.Config{})
	conn := connect(t, c, slog.New(slog.DiscardHandler))
	db, letters := open(t, filepath.Join(t.TempDir(), "state"))
	_, err := conn.JS.PublishMsg(t.Context(), &nats.Msg{Subject: conn.Names.DeadLetter("r"), Data: []byte("?"), Header: nats.Header{"Dr-Format": {"2"}}})
	must.Succeed(t, err)
	stop := importing(t, conn, letters, log)
	must.Succeed(t, deadletters.Write(t.Context(), conn, "1", letter(t, "r", "a", "")))
	await(t, "the first dead letter", func() bool { return len(letters.IDs("r", 0, 0)) == 1 })
	c.Servers[0].Kill()
	must.Fail(t, deadletters.Write(t.Context(), conn, "2", letter(t, "r", "b", "")), `dead letter of route "r" cannot be written to NATS`)
	must.Succeed(t, c.Servers[0].Restart())
	c.WaitReady(t)
	await(t, "a repeated write", func() bool {
		return deadletters.Write(t.Context(), conn, "2", letter(t, "r", "b", "")) == nil
	})
	await(t, "the second dead letter", func() bool { return len(letters.IDs("r", 0, 0)) == 2 })
	stop()
	must.Succeed(t, db.Close())
	if !strings.Contains(out.String(), "a dead letter of a worker cannot be read") {
		t.Errorf("the log does not name the unreadable message: %s", out.String())
	}
}

// TestLarge shows that a large dead letter loses the record of its call, then its previous object,
// and then its object. A retry of the latter needs the present state: see inspect.
func TestLarge(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	conn := connect(t, c, slog.New(slog.DiscardHandler))
	db, letters := open(t, filepath.Join(t.TempDir(), "state"))
	noise := func(size int) string { // text of 4/3 of the size, which does not compress below the size
		b := make([]byte, size)
		_, _ = rand.Read(b)
		return base64.StdEncoding.EncodeToString(b)
	}
	for i, size := range []int{560 << 10, 1 << 20} {
		l := letter(t, "r", "a", noise(size))
		l.Delta.Old = letter(t, "r", "a", noise(size)).Delta.Old
		must.Succeed(t, deadletters.Write(t.Context(), conn, fmt.Sprint(i), l))
	}
	withCall := letter(t, "r", "a", "x")
	withCall.Delta.Old, withCall.Call = letter(t, "r", "a", "x").Delta.Old, []byte(noise(1<<20))
	must.Succeed(t, deadletters.Write(t.Context(), conn, "call", withCall))
	stop := importing(t, conn, letters, slog.New(slog.DiscardHandler))
	await(t, "all", func() bool { return len(letters.IDs("r", 0, 0)) == 3 })
	stop()
	found, err := letters.Load(letters.IDs("r", 0, 0))
	must.Succeed(t, err)
	if d := found[0].Delta; d.New == nil || d.Old != nil || d.New.ResourceVersion() != "2" {
		t.Errorf("got %v (old %t, new %t %q), want the object only", d, d.Old != nil, d.New != nil, d.Object().ResourceVersion())
	}
	if d := found[1].Delta; d.New == nil || d.New.UID() != "u" || d.New.ResourceVersion() != "" {
		t.Errorf("got %v, want the identity only", d)
	}
	if l := found[2]; l.Call != nil || l.Delta.New == nil || l.Delta.New.ResourceVersion() != "2" {
		t.Errorf("got %v with %d bytes of a call, want the objects only", l.Delta, len(l.Call))
	}
	must.Succeed(t, db.Close())
}
