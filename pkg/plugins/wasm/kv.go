package wasm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	maxKey = 512 // bytes of a key
	// maxTTL is as good as for ever.
	maxTTL = 100 * 365 * 24 * time.Hour
)

// overlay is what a call has written: seen by the call itself, by others once it has succeeded.
type overlay struct {
	writes []plugins.KVWrite
	latest map[string]int // in writes, by key
	growth int64          // of the bytes in use
}

func (o *overlay) reset() {
	clear(o.writes)
	clear(o.latest)
	o.writes, o.growth = o.writes[:0], 0
}

// get returns what the call sees.
func (o *overlay) get(r *rights, key string) ([]byte, bool) {
	if i, ok := o.latest[key]; ok {
		w := &o.writes[i]
		return w.Value, !w.Delete && (w.Expires.IsZero() || r.clock.Now().Before(w.Expires))
	}
	return r.kv.Get(key)
}

// size returns what a key takes.
func (o *overlay) size(r *rights, key string) int64 {
	if i, ok := o.latest[key]; ok && o.writes[i].Delete {
		return 0
	} else if ok {
		return plugins.KVSize(key, o.writes[i].Value)
	}
	if value, ok := r.kv.Get(key); ok {
		return plugins.KVSize(key, value)
	}
	return 0
}

// put notes a write, unless there is no room for it.
func (o *overlay) put(r *rights, w plugins.KVWrite) bool {
	more := -o.size(r, w.Key)
	if !w.Delete {
		more += plugins.KVSize(w.Key, w.Value)
	}
	if more > 0 && r.kv.Size()+o.growth+more > r.kvLimit {
		return false
	}
	o.growth += more
	if i, ok := o.latest[w.Key]; ok {
		o.writes[i] = w
		return true
	}
	if o.latest == nil {
		o.latest = make(map[string]int)
	}
	o.latest[w.Key] = len(o.writes)
	o.writes = append(o.writes, w)
	return true
}

// commit makes the writes take effect. It fails if other calls took the room meanwhile.
func (o *overlay) commit(r *rights) error {
	if len(o.writes) == 0 {
		return nil
	}
	if err := r.kv.Commit(slices.Clone(o.writes), r.kvLimit); err != nil {
		return fmt.Errorf("what the guest wrote cannot be kept: %w", err)
	}
	return nil
}

// key reads a key out of the guest's memory.
func (c *hostCall) key() (string, bool) {
	at, size := c.u32(0), c.u32(1)
	if size == 0 || size > maxKey {
		return "", false
	}
	c.charge(kvFuel + 2*int64(size))
	key, ok := c.memory.Read(at, size)
	return string(key), ok
}

// hostKVGet is kv_get(key, keySize, buf, limit).
func hostKVGet(_ context.Context, c *hostCall) int64 {
	key, ok := c.key()
	if !ok {
		return statusInvalid
	}
	value, ok := c.scope.overlay.get(c.scope.rights, key)
	if !ok {
		return statusNotFound
	}
	c.charge(copyFuel(len(value)))
	if uint64(len(value)) <= uint64(c.u32(3)) && !c.memory.Write(c.u32(2), value) {
		return statusInvalid
	}
	return int64(len(value))
}

// hostKVSet is kv_set(key, keySize, value, valueSize, ttl_ms).
func hostKVSet(_ context.Context, c *hostCall) int64 {
	key, ok := c.key()
	ttl := int64(c.stack[4]) //nolint:gosec // it is one
	if !ok || ttl < 0 {
		return statusInvalid
	}
	value, ok := c.memory.Read(c.u32(2), c.u32(3))
	if !ok {
		return statusInvalid
	}
	r := c.scope.rights
	if int64(len(value)) > r.kvLimit {
		return statusQuota // not worth a copy
	}
	c.charge(keepFuel + 6*copyFuel(len(value)))
	w := plugins.KVWrite{Key: key, Value: append([]byte{}, value...)}
	if 0 < ttl && ttl < int64(maxTTL/time.Millisecond) {
		w.Expires = r.clock.Now().Round(0).Add(time.Duration(ttl) * time.Millisecond)
	}
	if !c.scope.overlay.put(r, w) {
		return statusQuota
	}
	return statusOK
}

// hostKVDel is kv_del(key, keySize).
func hostKVDel(_ context.Context, c *hostCall) int64 {
	key, ok := c.key()
	if !ok {
		return statusInvalid
	}
	o := &c.scope.overlay
	if _, there := o.get(c.scope.rights, key); !there {
		return statusNotFound
	}
	o.put(c.scope.rights, plugins.KVWrite{Key: key, Delete: true})
	return statusOK
}
