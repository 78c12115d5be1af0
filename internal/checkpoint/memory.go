package checkpoint

import (
	"errors"
	"fmt"
	"time"
)

// LoadMemory returns the kv of a handler, including expired values, sorted by key. The error wraps
// ErrCorrupt, or is [ErrClosed].
func (db *DB) LoadMemory(handler string) ([]Value, error) {
	var all []Value
	err := db.view(func(tx *reading) error {
		return tx.each(tx.shelf(memoriesBucket, bucketName(handler), valuesBucket), func(_, payload []byte) error {
			v, err := parseValue(payload)
			all = append(all, v)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("kv of handler %q in the state file: %w", handler, err)
	}
	return all, nil
}

func (tx *writing) memory(c *MemoryCut) error {
	if c.Handler == "" {
		return errors.New("a handler without a name")
	}
	values, err := tx.make(memoriesBucket, bucketName(c.Handler), valuesBucket)
	if err != nil {
		return err
	}
	for _, key := range c.Removed {
		if err := tx.remove(values, bounded(key)); err != nil {
			return err
		}
	}
	for key, v := range byKey(c.Put, func(v Value) []byte { return bounded(v.Key) }) {
		if v.Key == "" {
			return fmt.Errorf("handler %q: a value without a key", c.Handler)
		}
		if err := tx.put(values, key, v.payload()); err != nil {
			return err
		}
	}
	return nil
}

// payload returns the payload of a value.
func (v *Value) payload() []byte {
	var f fields
	f.flags(!v.Expires.IsZero())
	if !v.Expires.IsZero() {
		f.uint(uint64(v.Expires.UnixNano()))
	}
	f.text(v.Key)
	f.bytes(v.Value)
	return f
}

func parseValue(payload []byte) (v Value, err error) {
	r := reader{rest: payload}
	if r.uint()&1 != 0 {
		v.Expires = time.Unix(0, int64(r.uint())) //nolint:gosec // it was one
	}
	v.Key = r.text()
	v.Value = r.bytes()
	return v, r.done()
}
