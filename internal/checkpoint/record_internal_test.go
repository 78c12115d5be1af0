package checkpoint

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// An event that is no JSON was never written: the file is damaged.
func TestDamagedEvent(t *testing.T) {
	r := &event.Resource{}
	r.Resource = "pods"
	o, err := event.ParseObject(r, `{"metadata":{"name":"a"}}`)
	must.Succeed(t, err)
	read := func(e *event.Event, cut int) error {
		payload := eventPayload(&event.Delta{Op: event.Added, New: o, Event: e})
		owed := Pending{Delta: &event.Delta{}}
		var f fields
		f.uint(moreEvent)
		f.bytes(payload[:len(payload)-cut])
		return owed.parseMore(string(f))
	}
	must.Report(t, read(&event.Event{Data: []byte(`{}`)}, 0))
	for what, err := range map[string]error{
		"no JSON": read(&event.Event{Data: []byte(`{"x`)}, 0), "cut short": read(&event.Event{Data: []byte(`{}`)}, 1), "very short": read(&event.Event{}, 5),
	} {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzRecord reads random records, and writes the valid ones again.
func FuzzRecord(f *testing.F) {
	r := &event.Resource{}
	r.Resource = "pods"
	o, err := event.ParseObject(r, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}`)
	must.Succeed(f, err)
	owed := Pending{Delta: &event.Delta{Op: event.Updated, Source: "s", Old: o, New: o, Seen: time.Unix(1, 2)}, Closed: []string{"x"}, Attempts: 3}
	fed := Pending{Delta: chain.Delta(owed.Delta, &event.Event{ID: "i", Type: "t", Subject: "n/a", Time: time.Unix(3, 0), Data: []byte(`{"x":1}`), Route: "r"}), Unlimited: true}
	broken := Pending{Delta: chain.Delta(owed.Delta, &event.Event{Data: []byte(`{"x":`)})}
	for _, payload := range [][]byte{owed.payload(), fed.payload(), broken.payload(), Identity{o.Key(), "u"}.payload(), watchState{"5", true}.payload(), objectPayload(o, false), bytes.Repeat(owed.payload(), 9)} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		_, _ = parseObject(bytes.Clone(payload)) // which takes it over
		_, _ = parseWatchState(payload)
		if id, err := parseIdentity(payload); err == nil {
			if again, err := parseIdentity(id.payload()); err != nil || again != id {
				t.Error(again, err)
			}
		}
		owed, err := parsePending(1, payload, func(_ string, saved event.Resource) *event.Resource { return &saved })
		if err != nil {
			return
		}
		again := owed.payload()
		twice, err := parsePending(1, again, func(_ string, saved event.Resource) *event.Resource { return &saved })
		if err != nil || !bytes.Equal(twice.payload(), again) {
			t.Errorf("written and read again: %v", err)
		}
	})
}

// States of ended intents that a version before format 6 has left are removed when the file is
// opened.
func TestStatesOfAnOlderVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := Open(Config{Path: path})
	must.Succeed(t, err)
	r := &event.Resource{}
	r.Resource = "pods"
	over, _ := event.ParseObject(r, `{"metadata":{"name":"a","uid":"1","resourceVersion":"1"}}`)
	there, _ := event.ParseObject(r, `{"metadata":{"name":"b","uid":"2","resourceVersion":"2"}}`)
	must.Succeed(t, db.WriteIntents(map[string][]*event.Object{"w": {over, there}}))
	err = db.update(TransactionIntents, func(tx *writing) error { // as that version does
		s, err := tx.intentShelves("w")
		if err != nil {
			return err
		}
		if err := tx.remove(s.intents, intentKey(Identity{over.Key(), over.UID()})); err != nil {
			return err
		}
		return statefile.SetFormat(tx.top(metaBucket).Bucket, 5)
	})
	must.Succeed(t, err)
	must.Succeed(t, db.Close())
	if db, err = Open(Config{Path: path}); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var states, orders int
	err = db.view(func(tx *reading) error {
		states = tx.shelf(watchesBucket, "w", statesBucket).Stats().KeyN
		orders = tx.shelf(watchesBucket, "w", orderBucket).Stats().KeyN
		return nil
	})
	if err != nil || states != 1 || orders != 1 || db.Quarantined() != "" {
		t.Errorf("%d states, %d in order, %v", states, orders, err)
	}
	if w, err := db.LoadWatch("w"); err != nil || len(w.Intents) != 1 || w.Intents[0].JSON != string(there.JSON()) {
		t.Error(w, err)
	}
}
