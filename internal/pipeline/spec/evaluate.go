package spec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Verdict is the result of the filter and the keys of a route for a delta that it wants, or of a
// condition.
type Verdict struct {
	Lane     queue.Key
	Unseen   bool   // the route was not ready, so filter and keys were not evaluated
	Err      error  // filter or a key failed
	LimitKey string // of the limit

	Condition, Holds bool // it is about a condition, which holds
	Rescan           bool // all objects are evaluated
	Remind           bool // that it holds is reported again
	Cancels          bool // the object is back, and a delete that is held is cancelled
}

// Verdict completes what the table found: the lane of a delta that the route wants.
func (c *Config) Verdict(ctx context.Context, d *event.Delta, m filters.Match) Verdict {
	v := Verdict{Lane: queue.ObjectKey(d), Unseen: m.Verdict == filters.Unready}
	if m.Err != nil {
		what := "filter"
		if c.HasCondition() {
			what = "when"
		}
		v.Err = fmt.Errorf("%s: %w", what, m.Err)
	}
	if m.Verdict != filters.Matched {
		return v
	}
	if c.Key != nil {
		switch key, err := ask(ctx, c.Key, d); {
		case err == nil:
			v.Lane = queue.Key{Name: key}
		case errors.Is(err, expr.ErrAbsent):
			c.Count.Errors("absent").Inc()
		default:
			v.Err = fmt.Errorf("key: %w", err)
			return v
		}
	}
	v.LimitKey, v.Err = c.limitKey(ctx, d)
	if key, ok := strings.CutPrefix(v.LimitKey, "k"); ok && c.HasCondition() && c.Key == nil {
		// the limit takes it for one thing, which begins and ends in order
		v.Lane = queue.Key{Name: key}
	}
	return v
}

// ask asks for a key, which is a short one. The content of an object must not end the process.
func ask(ctx context.Context, of func(context.Context, *event.Delta) (string, error), d *event.Delta) (key string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %w", deliver.Panicked(p))
		}
	}()
	key, err = of(ctx, d)
	return short(key), err
}

// ErrorKind is the kind of an error of filter or key in the metrics.
func ErrorKind(err error) string {
	if errors.Is(err, expr.ErrCost) {
		return "cost"
	}
	return "filter"
}

// limitKey asks for the key that the limit counts d under. Keys that the configuration makes begin
// with another letter than objects.
func (c *Config) limitKey(ctx context.Context, d *event.Delta) (string, error) {
	if !c.Limit.On() {
		return "", nil
	}
	if c.Limit.Key != nil {
		switch key, err := ask(ctx, c.Limit.Key, d); {
		case err == nil:
			return "k" + key, nil
		case !errors.Is(err, expr.ErrAbsent):
			return "", fmt.Errorf("limit: %w", err)
		}
		c.Count.Errors("absent").Inc()
	}
	return ownLimitKey(d), nil
}

// ownLimitKey is the key of an object that counts by itself.
func ownLimitKey(d *event.Delta) string {
	name := queue.ObjectKey(d)
	return "o" + short(name.Source+"\x00"+name.Namespace+"\x00"+name.Name)
}

// DueLimitKey returns the limit key of a condition whose timer has expired. If the key failed,
// which makes the edge a dead letter, the object counts by itself.
func (c *Config) DueLimitKey(d *event.Delta, v *Verdict) string {
	if v.Err != nil && c.Limit.On() {
		return ownLimitKey(d)
	}
	return v.LimitKey
}

// Leaves is the verdict that a condition holds no longer.
func (c *Config) Leaves(ctx context.Context, d *event.Delta) Verdict {
	v := c.Verdict(ctx, d, filters.Match{Verdict: filters.Matched})
	if v.Err != nil { // it has to be told, whatever its key is
		c.Count.Errors(ErrorKind(v.Err)).Inc()
		v.Err = nil
	}
	v.Condition = true
	return v
}

// Evaluate asks filter and key. A delta that has passed before a restart has passed: what the
// filter looks up may have changed since, but the delta is pending. Without a key it is ordered by
// its object then.
func (c *Config) Evaluate(ctx context.Context, d *event.Delta, unseen bool) (v Verdict, filtered bool) {
	if c.HasCondition() {
		return c.evaluateEdge(ctx, d, unseen)
	}
	if !unseen {
		v = c.Verdict(ctx, d, filters.Match{Verdict: filters.Matched})
		if v.Err != nil {
			c.Count.Errors(ErrorKind(v.Err)).Inc()
			v.Err = nil
		}
		return v, false
	}
	m := c.Table.Evaluate(ctx, 0, d)
	return c.Verdict(ctx, d, m), m.Verdict == filters.Filtered
}

// evaluateEdge is evaluate for a route with a condition. What was told of it is told; what it
// failed on is the affair of what has come since, unless it fails still.
func (c *Config) evaluateEdge(ctx context.Context, d *event.Delta, unseen bool) (v Verdict, filtered bool) {
	if queue.IsEdge(d.Op) {
		v = c.Verdict(ctx, d, filters.Match{Verdict: filters.Matched})
		if !unseen && v.Err != nil {
			c.Count.Errors(ErrorKind(v.Err)).Inc()
			v.Err = nil
		}
		return v, false
	}
	if m := c.Table.Evaluate(ctx, 0, d); m.Verdict == filters.Failed {
		return c.Verdict(ctx, d, m), false
	}
	return v, true
}

// HoldKey returns the key of the route's own under which the object of d may come back; empty:
// there is none. That it is in a group with another one says nothing.
func (c *Config) HoldKey(d *event.Delta, lane queue.Key) string {
	if c.Grouped || lane == queue.ObjectKey(d) {
		return ""
	}
	return lane.Name
}

// maxKey is how long a key may be that is kept as it is, in bytes: a namespace and a name fit, with
// a word before them. Keys are made of what is in objects, so they may be as long as these, and a
// limit remembers many of them.
const maxKey = 512

// short returns key, or the hash of one that is longer than maxKey: keys are compared, and passed
// on to sinks as what to keep order by.
func short(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
