package checkpoint

import (
	"encoding/binary"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/value"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// letters removes and writes dead letters, and writes the last used ID.
func (tx *writing) letters(put []Letter, lost []loss, last uint64) error {
	top, err := tx.make(lettersBucket)
	if err != nil {
		return err
	}
	entries, err := tx.make(lettersBucket, entriesBucket)
	if err != nil {
		return err
	}
	for i := range put {
		if err := tx.put(entries, pendingKey(put[i].ID), put[i].payload()); err != nil {
			return err
		}
	}
	for _, x := range lost { // in a flood, a new one may be lost at once
		if err := tx.remove(entries, pendingKey(x.id)); err != nil {
			return err
		}
	}
	var f fields
	f.uint(last)
	return tx.put(top, []byte(stateKey), f)
}

// payload returns the payload of a dead letter: its fields, and the delta like a pending one.
func (l *Letter) payload() []byte {
	var f fields
	f.flags(l.Unseen)
	f.uint(uint64(l.Time.UnixNano())) //nolint:gosec // read back as it was
	f.text(l.Route)
	f.text(l.Sink)
	f.text(l.Error)
	pending := Pending{Delta: l.Delta, Attempts: l.Attempts}
	f.bytes(pending.payload())
	return f
}

func parseLetter(key, payload []byte) (Letter, error) {
	if len(key) != 8 {
		return Letter{}, value.Corruptf("a dead letter's number has %d bytes", len(key))
	}
	r := reader{rest: payload}
	l := Letter{ID: binary.BigEndian.Uint64(key), Unseen: r.uint()&1 != 0}
	l.Time = time.Unix(0, int64(r.uint())) //nolint:gosec // it was one
	l.Route, l.Sink, l.Error = r.text(), r.text(), r.text()
	delta := r.bytes()
	if err := r.done(); err != nil {
		return l, err
	}
	var saved *event.Resource
	pending, err := parsePending(l.ID, delta, func(_ string, resource event.Resource) *event.Resource {
		if saved == nil {
			saved = &resource
		}
		return saved
	})
	l.Delta, l.Attempts = pending.Delta, pending.Attempts
	return l, err
}
