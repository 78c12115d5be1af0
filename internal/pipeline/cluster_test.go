package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// change is a delta in a comparable form: a version of 0 means no object.
type change struct {
	op       string
	name     string
	uid      string
	old, new int
}

// cluster makes deltas as a source does, and keeps its present objects.
type cluster struct {
	t       *testing.T
	there   map[string]change // by name; new is its version
	version int
}

// step makes the deltas of one random change of an object.
func (c *cluster) step(kind, name string) []*event.Delta {
	c.version++
	now, exists := c.there[name]
	added := func() *event.Delta {
		c.version++
		c.there[name] = change{name: name, uid: fmt.Sprint("uid", c.version), new: c.version}
		return deltaOf(c.t, event.Added, name, c.there[name].uid, 0, c.version)
	}
	gone := func(op event.Op) *event.Delta {
		delete(c.there, name)
		return deltaOf(c.t, op, name, now.uid, c.version, 0)
	}
	switch {
	case !exists:
		return []*event.Delta{added()}
	case kind == "delete":
		return []*event.Delta{gone(event.Deleted)}
	case kind == "deselect":
		return []*event.Delta{gone(event.Deselected)}
	case kind == "recreate":
		return []*event.Delta{gone(event.Deleted), added()}
	case kind == "sync":
		return []*event.Delta{deltaOf(c.t, event.Sync, name, now.uid, 0, now.new)}
	case kind == "relist": // after a gap: the net change of each object
		var deltas []*event.Delta
		for _, other := range []string{"a", "b", "c"} {
			if _, exists := c.there[other]; exists {
				deltas = append(deltas, c.step([]string{"update", "delete", "recreate"}[c.version%3], other)...)
			}
		}
		return deltas
	default:
		c.there[name] = change{name: name, uid: now.uid, new: c.version}
		return []*event.Delta{deltaOf(c.t, event.Updated, name, now.uid, now.new, c.version)}
	}
}

// changeOf reads the change from the data of an event.
func changeOf(t *testing.T, e event.Event) change {
	type object struct {
		Metadata struct{ Name, UID, ResourceVersion string }
	}
	var data struct {
		Op                string
		Object, OldObject *object
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	version := func(o *object) (v int) {
		if o != nil {
			v, _ = strconv.Atoi(o.Metadata.ResourceVersion)
		}
		return v
	}
	c := change{data.Op, data.Object.Metadata.Name, data.Object.Metadata.UID, version(data.OldObject), version(data.Object)}
	if c.op == "deleted" || c.op == "deselected" {
		c.old, c.new = c.new, 0
	}
	return c
}

// faults is a random source of faults for several goroutines.
type faults struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (c *faults) oneIn(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n) == 0
}

func (c *faults) sleep(most time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		c.mu.Lock()
		d := time.Duration(c.r.Int64N(int64(most)))
		c.mu.Unlock()
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

// troubled is a handler with all verdicts and faults that succeeds after enough attempts.
func (c *faults) troubled(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	switch {
	case c.oneIn(12):
		return nil, errors.New("out of sorts")
	case c.oneIn(12):
		panic("out of its mind")
	case c.oneIn(12):
		return make([]plugins.Result, len(batch)+1), nil
	}
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		switch {
		case c.oneIn(6):
			results[i] = plugins.Result{Verdict: plugins.Retry, Err: plugins.RetryLater(errDown, time.Second)}
		case c.oneIn(6):
			results[i] = plugins.Result{Verdict: plugins.Fail, Err: errDown}
		default:
			results[i] = plugins.Result{Events: []plugins.Emit{{Data: event.Payload(d)}}}
		}
	}
	return results, nil
}

func (c *faults) refuse(event.Event) error {
	switch {
	case c.oneIn(5):
		return plugins.RetryLater(errDown, 3*time.Second)
	case c.oneIn(2):
		return errDown
	}
	return nil
}

// replay applies the changes that a route delivered, like a receiver with a copy of the cluster.
// Each change must fit the previous one.
func replay(saw []change) (map[string]change, error) {
	there := map[string]change{}
	for i, c := range saw {
		now, exists := there[c.name]
		switch {
		case c.op == "added" && exists,
			c.op != "added" && !exists,
			c.op != "added" && c.uid != now.uid,
			c.op == "updated" && c.old != now.new,
			c.op != "added" && max(c.old, c.new) < now.new:
			return nil, fmt.Errorf("change %d, %v, does not follow %v", i, c, now)
		case c.new == 0:
			delete(there, c.name)
		default:
			there[c.name] = change{name: c.name, uid: c.uid, new: c.new}
		}
	}
	return there, nil
}

func equalMaps[V any](a, b map[string]V) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
