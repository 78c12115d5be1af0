package process

import (
	"fmt"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// overlay is what a call has written to the handler's memory: seen by the call itself, by others once it has succeeded. It is safe for
// concurrent use.
type overlay struct {
	kv     plugins.KV // nil if the handler has none
	clock  timer.Clock
	limit  int64
	atOnce bool // there is no call: what is written takes effect now

	mu     sync.Mutex
	done   bool // the call is over
	writes []plugins.KVWrite
	latest map[string]int // in writes, by key
	growth int64          // of the bytes in use
}

// get returns what the call sees.
func (o *overlay) get(key string) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i, ok := o.latest[key]; ok {
		w := &o.writes[i]
		return w.Value, !w.Delete && (w.Expires.IsZero() || o.clock.Now().Before(w.Expires))
	}
	return o.kv.Get(key)
}

// size returns what a key takes.
func (o *overlay) size(key string) int64 {
	if i, ok := o.latest[key]; ok && o.writes[i].Delete {
		return 0
	} else if ok {
		return plugins.KVSize(key, o.writes[i].Value)
	}
	if value, ok := o.kv.Get(key); ok {
		return plugins.KVSize(key, value)
	}
	return 0
}

// put notes a write. The error is plugins.ErrKVFull if there is no room for it.
func (o *overlay) put(w plugins.KVWrite) error {
	if o.atOnce {
		return o.kv.Commit([]plugins.KVWrite{w}, o.limit)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return fmt.Errorf("%q was written after its call", w.Key)
	}
	more := -o.size(w.Key)
	if !w.Delete {
		more += plugins.KVSize(w.Key, w.Value)
	}
	if more > 0 && o.kv.Size()+o.growth+more > o.limit {
		return plugins.ErrKVFull
	}
	o.growth += more
	if i, ok := o.latest[w.Key]; ok {
		o.writes[i] = w
		return nil
	}
	if o.latest == nil {
		o.latest = make(map[string]int)
	}
	o.latest[w.Key] = len(o.writes)
	o.writes = append(o.writes, w)
	return nil
}

// commit makes the writes take effect. It fails if other calls took the room meanwhile.
func (o *overlay) commit() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	if len(o.writes) == 0 {
		return nil
	}
	if err := o.kv.Commit(o.writes, o.limit); err != nil {
		return fmt.Errorf("what the plugin wrote cannot be kept: %w", err)
	}
	return nil
}
