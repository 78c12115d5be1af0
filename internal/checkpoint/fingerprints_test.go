package checkpoint_test

import (
	"os"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// past returns the body of a Secret as the file and now tell it; empty: the file has no
// fingerprints of it.
func past(t *testing.T, db *checkpoint.DB, now *event.Object) string {
	t.Helper()
	o, err := db.ReadObject("w", now.Key())
	must.Succeed(t, err)
	w, err := db.LoadWatch("w")
	must.Succeed(t, err)
	if o == nil || !o.Bare || len(w.Objects) != 1 || (o.Past == nil) != (w.Objects[0].Past == nil) {
		t.Fatalf("%+v, %+v", o, w)
	}
	if o.Past == nil || o.Past.IsUnknown() {
		return ""
	}
	bare, err := event.ParseObject(now.Resource(), o.JSON)
	must.Succeed(t, err)
	return bare.AsBare(o.Past).Recalled(now).Raw().Get("body").Str()
}

// TestFingerprints: they are those of the object in the file, made with the key of the file; in the
// file of a follower, too.
func TestFingerprints(t *testing.T) {
	// Guarantee: secrets-known-changes, secrets-off-disk
	const body = "c4n4ry-in-the-c0al-mine"
	secrets := resource("", "secrets")
	s1, s2, other := object(t, secrets, "a", "u", "1", body), object(t, secrets, "a", "u", "2", body), object(t, secrets, "a", "v", "3", body)
	key := fingerprint.NewKey([]byte("key"))
	put := func(o *event.Object) checkpoint.Cut {
		return checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Put: []*event.Object{o}}}}
	}
	leader, path := &log{}, statePath(t)
	db := openConfig(t, leader.config(path, 1))
	write(t, db, checkpoint.Cut{Cluster: "c"}) // a follower begins with a snapshot
	copied := path + ".follower"
	copyFile(t, path, copied)
	leader.frames = nil
	follower := open(t, copied)
	defer follower.Close()
	checkpoint.SetKey(follower, key)
	steps := []struct {
		name string
		key  *fingerprint.Key
		cut  checkpoint.Cut
		now  *event.Object
		want string
	}{
		{"without a key", nil, put(s1), s2, ""},
		{"with one", key, put(s1), s2, body},
		{"a later state", key, put(s2), s2, body},
		{"of which only the identity is known", key, put(s2.AsBare(&fingerprint.Past{})), s2, body},
		{"by an older version", nil, put(s1), s2, ""},
		{"another object", key, put(other), other, body},
		{"which is gone", key, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Deleted: []checkpoint.Identity{{Key: s1.Key(), UID: "v"}}}}}, nil, ""},
		{"and there again by an older version", nil, put(other), other, ""},
		{"another key", fingerprint.NewKey([]byte("another")), put(s1), s2, ""},
	}
	for _, step := range steps {
		checkpoint.SetKey(db, step.key)
		write(t, db, step.cut)
		for ; len(leader.frames) > 0; leader.frames = leader.frames[1:] {
			must.Succeed(t, follower.Apply(leader.frames[0]))
		}
		if checkpoint.SetKey(db, key); step.now == nil {
			continue
		}
		if a, b := past(t, db, step.now), past(t, follower, step.now); a != step.want || b != step.want {
			t.Errorf("%s: %q, and at the follower %q", step.name, a, b)
		}
	}
	must.Succeed(t, db.Close())
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), body) {
		t.Error("the data of a Secret is on disk", err)
	}
}

// TestPendingFingerprints: a pending delta of a Secret has the fingerprints of both states, also
// after it was read and is written again. Another key has none, and neither has a dead letter.
func TestPendingFingerprints(t *testing.T) {
	// Guarantee: secrets-known-changes, secrets-off-disk
	const body = "c4n4ry-in-the-c0al-mine"
	secrets := resource("", "secrets")
	was, is := object(t, secrets, "a", "u", "1", body), object(t, secrets, "a", "u", "2", body+"!")
	updated := &event.Delta{Source: "s", Op: event.Updated, Old: was, New: is}
	path := statePath(t)
	db := open(t, path)
	defer db.Close()
	all := []checkpoint.Pending{
		{ID: 1, Delta: &event.Delta{Source: "s", Op: event.Added, New: was}, Closed: []string{"sink"}},
		{ID: 2, Delta: updated},
		{ID: 3, Delta: &event.Delta{Source: "s", Op: event.Deleted, Old: is}},
	}
	key := fingerprint.NewKey([]byte("key"))
	known := []string{" 1:" + body, "1:" + body + " 2:(unknown)", "2:(unknown) "}
	for _, step := range []struct {
		name        string
		write, read *fingerprint.Key
		want        []string
	}{
		{"a key", key, key, known},
		{"written again", key, key, known},
		{"by a router without a key", nil, key, known},
		{"another key", key, fingerprint.NewKey([]byte("another")), []string{" 1:", "1: 2:", "2: "}},
		{"and written again", key, key, []string{" 1:", "1: 2:", "2: "}},
	} {
		checkpoint.SetKey(db, step.write)
		write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{{Name: "r", Put: all}}})
		checkpoint.SetKey(db, step.read)
		var err error
		all, err = db.LoadRoute("r", checkpoint.Part{}, func(string) *event.Resource { return secrets })
		must.Succeed(t, err)
		for i, o := range all {
			if got := bodyOf(t, o.Delta.Old, was) + " " + bodyOf(t, o.Delta.New, was); got != step.want[i] {
				t.Errorf("%s: delta %d is %q, want %q", step.name, o.ID, got, step.want[i])
			}
		}
	}
	letters := openLetters(t, db, checkpoint.LettersConfig{})
	must.Succeed(t, letters.Add(t.Context(), []checkpoint.Letter{{Route: "r", Delta: updated}}))
	if l := load(t, letters, letters.IDs("", 0, 0)...); len(l) != 1 || l[0].Delta.New.IsBare() {
		t.Errorf("the dead letter: %+v", l)
	}
	must.Succeed(t, db.Close())
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), body) {
		t.Error("the data of a Secret is on disk", err)
	}
}

// bodyOf returns the version of a restored Secret, and its body as the file and now tell it; empty:
// the file has no fingerprints of it.
func bodyOf(t *testing.T, o, now *event.Object) string {
	t.Helper()
	switch {
	case o == nil:
		return ""
	case !o.IsBare() || o.Raw().Get("body") != "":
		t.Errorf("%s is not bare", o.JSON())
	case o.IsUnknown():
		return o.ResourceVersion() + ":"
	}
	return o.ResourceVersion() + ":" + o.Recalled(now).Raw().Get("body").Str()
}
