package checkpoint

import (
	"bytes"
	"errors"

	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// SetKey sets the key of the fingerprints of Secrets. Without a key, none are written, and those in
// the file are not used. Versions before format 7 neither write nor read fingerprints.
func SetKey(db *DB, key *fingerprint.Key) { db.prints.Store(key) }

// fingerprinted are the fingerprints of a state of an object. An older version changes an object
// without them, so they name the state.
type fingerprinted struct{ key, uid, version, prints string }

// fingerprintsOf returns the fingerprints of a Secret, of a bare one those that were restored;
// false: its values are not known here.
func fingerprintsOf(key *fingerprint.Key, o *event.Object) (f fingerprinted, known bool) {
	if past, ok := o.Past().(*fingerprint.Past); ok && !past.IsUnknown() {
		id, uid, prints := past.Prints()
		return fingerprinted{id, uid, o.ResourceVersion(), prints}, true
	}
	if key == nil || o.IsBare() {
		return f, false
	}
	return fingerprinted{key.ID(), o.UID(), o.ResourceVersion(), key.Of(o.UID(), o.Raw())}, true
}

func (p fingerprinted) payload() []byte {
	var f fields
	for _, text := range []string{p.key, p.uid, p.version, p.prints} {
		f.text(text)
	}
	return f
}

func parseFingerprinted(payload []byte) (p fingerprinted, err error) {
	r := reader{rest: payload}
	for _, text := range []*string{&p.key, &p.uid, &p.version, &p.prints} {
		*text = r.text()
	}
	return p, r.done()
}

// past returns the state of which these are the fingerprints, or one without fingerprints if they
// are those of another state than that of an identity.
func (p fingerprinted) past(key *fingerprint.Key, identity string) *fingerprint.Past {
	o, err := event.ParseObject(nil, identity)
	if err != nil || o.UID() != p.uid || o.ResourceVersion() != p.version {
		return &fingerprint.Past{}
	}
	return key.PastOf(p.key, p.uid, p.prints)
}

// putPrints writes the fingerprints of an object to s, which it makes if there is none yet. Only
// Secrets whose values are known have fingerprints.
func putPrints(tx *writing, watch string, s *shelf, key []byte, o *event.Object) (err error) {
	if !secret(o) {
		return nil
	}
	p, known := fingerprintsOf(tx.prints, o)
	if !known {
		return nil
	}
	if s.Bucket == nil {
		if *s, err = tx.make(watchesBucket, watch, printsBucket); err != nil {
			return err
		}
	}
	return tx.put(*s, key, p.payload())
}

// printsOf returns the fingerprints of a watch, without a bucket if it has none.
func printsOf(tx *writing, watch string) shelf {
	read := &reading{Tx: tx.Tx, codec: tx.codec}
	s := read.shelf(watchesBucket, watch, printsBucket)
	if s.Bucket != nil {
		s.place = tx.redo.Place(watchesBucket, watch, printsBucket)
	}
	return s
}

// tidyPrints removes the fingerprints of objects that an older version has removed.
func tidyPrints(tx *writing) error {
	read := &reading{Tx: tx.Tx, codec: tx.codec}
	for _, name := range tx.top(watchesBucket).names() {
		s := printsOf(tx, name)
		if s.Bucket == nil {
			continue
		}
		objects := read.shelf(watchesBucket, name, objectsBucket)
		var over [][]byte
		err := s.ForEach(func(key, _ []byte) error {
			if objects.Bucket == nil || objects.Get(key) == nil {
				over = append(over, bytes.Clone(key))
			}
			return nil
		})
		for _, key := range over {
			err = errors.Join(err, tx.remove(s, key))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// objectShelves has the objects of a watch and their fingerprints, which only Secrets have.
type objectShelves struct{ objects, prints shelf }

func (tx *reading) objectShelves(watch string) objectShelves {
	return objectShelves{tx.shelf(watchesBucket, watch, objectsBucket), tx.shelf(watchesBucket, watch, printsBucket)}
}

// savedObject is an object and its fingerprints as they are stored.
type savedObject struct{ key, value, prints []byte }

func (s objectShelves) at(key, value []byte) savedObject {
	o := savedObject{key: key, value: value}
	if s.prints.Bucket != nil {
		o.prints = s.prints.Get(key)
	}
	return o
}

// addPast sets the fingerprints of an object of which only the identity is stored.
func (tx *reading) addPast(o *Object, s objectShelves, saved savedObject) error {
	if !o.Bare || saved.prints == nil {
		return nil
	}
	payload, err := tx.codec.Payload(s.prints.seed, saved.key, saved.prints)
	if err != nil {
		return err
	}
	p, err := parseFingerprinted(payload)
	if err == nil {
		o.Past = p.past(tx.prints, o.JSON)
	}
	return err
}

// printsOfDelta returns the fingerprints of both states of a pending delta, as its record has them;
// empty: none of them has any. Like the record of a pending delta, that of a state without
// fingerprints is empty.
func printsOfDelta(key *fingerprint.Key, d *event.Delta) string {
	var f fields
	some := false
	for _, o := range []*event.Object{d.Old, d.New} {
		var payload []byte
		if o != nil && secret(o) {
			if p, known := fingerprintsOf(key, o); known {
				payload, some = p.payload(), true
			}
		}
		f.bytes(payload)
	}
	if !some {
		return ""
	}
	return string(f)
}

// makeBare says of the Secrets in a restored delta that only their identities and fingerprints are
// known.
func (o *Pending) makeBare(key *fingerprint.Key) error {
	r := reader{rest: []byte(o.prints)}
	for _, state := range []**event.Object{&o.Delta.Old, &o.Delta.New} {
		var payload []byte
		if o.prints != "" {
			payload = r.bytes()
		}
		if *state == nil || !secret(*state) {
			continue
		}
		past := &fingerprint.Past{}
		if len(payload) > 0 {
			p, err := parseFingerprinted(payload)
			if err != nil {
				return err
			}
			past = p.past(key, string((*state).JSON()))
		}
		*state = (*state).AsBare(past)
	}
	o.prints = ""
	return r.done()
}
