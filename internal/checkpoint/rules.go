package checkpoint

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
)

// LoadRules returns the records of these kinds (none: all) of a route's rules, by kind and key. The
// error wraps ErrCorrupt, or is [ErrClosed].
func (db *DB) LoadRules(name string, kinds ...byte) ([]RuleRecord, error) {
	var all []RuleRecord
	err := db.view(func(tx *reading) (err error) {
		s := tx.shelf(routesBucket, bucketName(name), rulesBucket)
		if s.Bucket == nil {
			return nil
		}
		if len(kinds) == 0 {
			all, err = tx.rules(s, nil, nil)
		}
		for _, kind := range kinds {
			if all, err = tx.rules(s, []byte{kind}, all); err != nil {
				break
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("route %q in the state file: %w", name, err)
	}
	return all, nil
}

// rules appends all records whose key begins with the prefix.
func (tx *reading) rules(s shelf, prefix []byte, all []RuleRecord) ([]RuleRecord, error) {
	cursor := s.Cursor()
	for key, value := cursor.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
		payload, err := tx.codec.Payload(s.seed, key, value)
		if err != nil {
			return nil, err
		}
		record, err := parseRule(payload)
		if err != nil {
			return nil, err
		}
		all = append(all, record)
	}
	return all, nil
}

// rules writes records of a route, by the name of its bucket.
func (tx *writing) rules(name string, records []RuleRecord) error {
	if len(records) == 0 {
		return nil
	}
	s, err := tx.make(routesBucket, name, rulesBucket)
	if err != nil {
		return err
	}
	for key, r := range byKey(records, RuleRecord.place) {
		if r.Value == nil {
			err = tx.remove(s, key)
		} else {
			err = tx.put(s, key, r.payload())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// place returns the key under which the record is stored.
func (r RuleRecord) place() []byte { return append([]byte{r.Kind}, bounded(string(r.Key))...) }

func (r RuleRecord) payload() []byte {
	f := fields{r.Kind}
	f.bytes(r.Key)
	f.bytes(r.Value)
	return f
}

func parseRule(payload []byte) (RuleRecord, error) {
	if len(payload) == 0 {
		return RuleRecord{}, statefile.Corruptf("a rule's record is empty")
	}
	r := reader{rest: payload[1:]}
	record := RuleRecord{Kind: payload[0], Key: r.bytes()}
	record.Value = r.bytes()
	return record, r.done()
}

// moreMark starts an entry among the sinks of a pending delta that is no sink. No sink has such a
// name: an older version takes it for a sink that no longer exists.
const moreMark = "\x00"

// The fields of that entry: a number and its values. An unknown number is skipped.
const (
	moreUnlimited  = 1 // no value
	moreSuppressed = 2 // their number
	// of entered and left: the time since when the condition holds, its discriminator, the number
	// of reminders, and whether it is late
	moreCondition = 3
	moreEvent     = 4 // the event of an upstream route, see eventPayload
	moreCall      = 5 // of a dead letter: the record of the failed call
	morePrints    = 6 // of Secrets: the fingerprints of Old and New, see printsOfDelta (since format 7)
)

// more returns the facts about a delta from rules, an upstream route and its handler; empty: none.
func (o *Pending) more() string {
	var f fields
	if o.Unlimited {
		f.uint(moreUnlimited)
		f.bytes(nil)
	}
	if n := o.Delta.Suppressed; n > 0 {
		var count fields
		count.uint(uint64(n))
		f.uint(moreSuppressed)
		f.bytes(count)
	}
	if d := o.Delta; !d.Since.IsZero() || d.Began != "" || d.Repeat != 0 || d.Late {
		var condition fields
		condition.flags(!d.Since.IsZero(), d.Late)
		if !d.Since.IsZero() {
			condition.uint(uint64(d.Since.UnixNano()))
		}
		condition.text(d.Began)
		condition.uint(uint64(max(d.Repeat, 0)))
		f.uint(moreCondition)
		f.bytes(condition)
	}
	if o.Delta.Event != nil {
		f.uint(moreEvent)
		f.bytes(eventPayload(o.Delta))
	}
	if len(o.call) > 0 {
		f.uint(moreCall)
		f.bytes(o.call)
	}
	if o.prints != "" {
		f.uint(morePrints)
		f.text(o.prints)
	}
	if len(f) == 0 {
		return ""
	}
	return moreMark + string(f)
}

func (o *Pending) parseMore(text string) error {
	r := reader{rest: []byte(text)}
	for len(r.rest) > 0 {
		what := r.uint()
		value := reader{rest: r.bytes()}
		switch what {
		case moreUnlimited:
			o.Unlimited = true
		case moreSuppressed:
			o.Delta.Suppressed = int(min(value.uint(), math.MaxInt32))
		case moreCondition:
			o.parseCondition(&value)
		case moreCall:
			o.call = value.rest
		case morePrints:
			o.prints = string(value.rest)
		case moreEvent:
			if err := o.parseEvent(&value); err != nil {
				return err
			}
		}
		if value.err != nil {
			return value.err
		}
	}
	return r.done()
}

func (o *Pending) parseCondition(r *reader) {
	flags := r.uint()
	if flags&1 != 0 {
		o.Delta.Since = time.Unix(0, int64(r.uint())) //nolint:gosec // it was one
	}
	o.Delta.Late = flags&2 != 0
	o.Delta.Began = r.text()
	o.Delta.Repeat = int(min(r.uint(), math.MaxInt32))
}
