package checkpoint_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func resource(group, name string) *event.Resource {
	return &event.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, Cluster: "prod", Kind: "Thing"}
}

// object makes an object with a body that does not compress to nothing.
func object(t testing.TB, r *event.Resource, name, uid, version, body string) *event.Object {
	t.Helper()
	o, err := event.ParseObject(r, fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":%q,"resourceVersion":%q},"body":%q}`, name, uid, version, body))
	must.Succeed(t, err)
	return o
}

func key(name string) event.Key { return event.Key{Namespace: "ns", Name: name} }

func identity(name, uid string) checkpoint.Identity {
	return checkpoint.Identity{Key: key(name), UID: uid}
}

// intent returns an object with its identity only.
func intent(name, uid string) *event.Object {
	return event.Identity(resource("", "pods"), key(name), uid)
}

func open(t testing.TB, path string) *checkpoint.DB {
	t.Helper()
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func reopen(t testing.TB, db *checkpoint.DB, path string) *checkpoint.DB {
	t.Helper()
	must.Succeed(t, db.Close())
	db = open(t, path)
	if db.Quarantined() != "" {
		t.Fatal("an intact file was moved away")
	}
	return db
}

func write(t testing.TB, db *checkpoint.DB, cut checkpoint.Cut) {
	t.Helper()
	must.Succeed(t, db.Write(cut))
}

func statePath(t testing.TB) string { return filepath.Join(t.TempDir(), "state", "state.db") }

// dump describes the whole saved state of the watches and routes.
func dump(t testing.TB, db *checkpoint.DB, watches, routes []string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s\n", db.Cluster())
	for _, id := range watches {
		w, err := db.LoadWatch(id)
		must.Succeed(t, err)
		if w == nil {
			continue
		}
		fmt.Fprintf(&b, "watch %s fed %s relisting %v\n", id, w.Applied, w.Relisting)
		if w.Cluster != db.Cluster() {
			fmt.Fprintf(&b, "  of cluster %s\n", w.Cluster)
		}
		slices.SortFunc(w.Objects, func(a, b checkpoint.Object) int { return cmp.Compare(a.JSON, b.JSON) })
		for _, o := range w.Objects {
			fmt.Fprintf(&b, "  %s bare %v\n", o.JSON, o.Bare)
		}
		slices.SortFunc(w.Intents, func(a, b checkpoint.Intent) int {
			return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Key.Name, b.Key.Name))
		})
		for _, in := range w.Intents {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(fmt.Sprintf("intent %s %s %s", in.Key, in.UID, in.JSON)))
		}
	}
	for _, name := range routes {
		owed, err := db.LoadRoute(name, checkpoint.Part{}, func(string) *event.Resource { return nil })
		must.Succeed(t, err)
		for _, o := range owed {
			b.WriteString(describe(name, o))
		}
	}
	letters := openLetters(t, db, checkpoint.LettersConfig{})
	for _, l := range load(t, letters, letters.IDs("", 0, 0)...) {
		b.WriteString(describeLetter(l))
	}
	return b.String()
}

func describe(route string, o checkpoint.Pending) string {
	d := o.Delta
	text := func(o *event.Object) string {
		if o == nil {
			return "-"
		}
		return o.Resource().String() + string(o.JSON())
	}
	seen := "never"
	if !d.Seen.IsZero() {
		seen = d.Seen.UTC().Format(time.RFC3339Nano)
	}
	fed := "-"
	if d.Event != nil {
		e := *d.Event
		e.Time = e.Time.UTC()
		fed = fmt.Sprintf("%+v %s", e, e.Data)
	}
	return fmt.Sprintf("route %s owes %d %s (%v %v %v) seen %s closed %q attempts %d unlimited %v suppressed %d since %d began %q repeat %d late %v\n  old %s\n  new %s\n  event %s\n",
		route, o.ID, d, d.Initial, d.Stale, d.Redelivered, seen, o.Closed, o.Attempts, o.Unlimited, d.Suppressed, d.Since.UnixNano(), d.Began, d.Repeat, d.Late, text(d.Old), text(d.New), fed)
}

// logger returns a logger and its output.
func logger() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(text)
}

func copyFile(t must.T, from, to string) {
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	must.Succeed(t, err)
}

func randomText(n int, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789+-"[random.IntN(38)]
	}
	return string(b)
}
