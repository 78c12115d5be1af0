package spec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Verdict is the result of the filter and the keys, or of the condition, of a route for a delta.
type Verdict struct {
	Lane     queue.Key
	Unseen   bool   // filter and keys were not evaluated, because the route was not ready, or Deferred
	Deferred bool   // the allowance of the owner had nothing left
	Err      error  // the filter or a key failed
	LimitKey string // of the limit

	Condition, Holds bool // the route has a condition, and it holds
	Rescan           bool // all objects are evaluated
	Remind           bool // an Entered report is repeated
	Cancels          bool // the object exists again, and a held delete is cancelled
}

// Verdict completes a match of the table with the lane of the delta.
func (s *Settings) Verdict(ctx context.Context, d *event.Delta, m filters.Match) Verdict {
	v := Verdict{Lane: queue.ObjectKey(d), Deferred: m.Verdict == filters.Deferred}
	v.Unseen = v.Deferred || m.Verdict == filters.Unready
	if m.Err != nil {
		what := "filter"
		if s.HasCondition() {
			what = "when"
		}
		v.Err = fmt.Errorf("%s: %w", what, m.Err)
	}
	if m.Verdict != filters.Matched || !s.table.Sees(0, d) {
		return v
	}
	// An object without a key is ordered by itself; a key that fails makes a dead letter.
	if s.Key != nil {
		switch key, err := evaluateKey(ctx, s.Key, d); {
		case err == nil:
			v.Lane = queue.Key{Name: key}
		case errors.Is(err, cel.ErrAbsent):
			s.count.Errors("absent").Inc()
		default:
			v.Err = fmt.Errorf("key: %w", err)
			return v
		}
	}
	v.LimitKey, v.Err = s.limitKey(ctx, d)
	if key, ok := strings.CutPrefix(v.LimitKey, "k"); ok && s.HasCondition() && s.Key == nil {
		// the limit treats it as one thing, whose edges are delivered in order
		v.Lane = queue.Key{Name: key}
	}
	return v
}

// evaluateKey evaluates a key expression and shortens the key. A panic becomes an error, because
// the content of an object must not end the process.
func evaluateKey(ctx context.Context, of func(context.Context, *event.Delta) (string, error), d *event.Delta) (key string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %w", Panicked(p))
		}
	}()
	key, err = of(ctx, d)
	return short(key), err
}

// Panicked converts a recovered value to an error. Only messages of the Go runtime are included,
// because others may quote an object.
func Panicked(p any) error {
	var runtimeError interface{ RuntimeError() }
	if err, ok := p.(error); ok && errors.As(err, &runtimeError) {
		return err
	}
	return fmt.Errorf("a value of type %T", p)
}

// ErrNoRoom is the error of a delete that was not held, because its owner has used its share.
var ErrNoRoom = errors.New("the delete was not held")

// ErrorKind returns the label of an error of filter or key in the metrics.
func ErrorKind(err error) string {
	switch {
	case errors.Is(err, cel.ErrCost):
		return "cost"
	case errors.Is(err, ErrNoRoom):
		return "no_room"
	}
	return "filter"
}

// limitKey evaluates the limit key of d. Keys of the configuration have another first letter than
// keys of objects.
func (s *Settings) limitKey(ctx context.Context, d *event.Delta) (string, error) {
	if !s.Limit.On() {
		return "", nil
	}
	if s.Limit.Key != nil {
		switch key, err := evaluateKey(ctx, s.Limit.Key, d); {
		case err == nil:
			return "k" + key, nil
		case !errors.Is(err, cel.ErrAbsent):
			return "", fmt.Errorf("limit: %w", err)
		}
		s.count.Errors("absent").Inc()
	}
	return ownLimitKey(d), nil
}

// ownLimitKey is the limit key of an object that counts by itself.
func ownLimitKey(d *event.Delta) string {
	name := queue.ObjectKey(d)
	return "o" + short(name.Source+"\x00"+name.Namespace+"\x00"+name.Name)
}

// DueLimitKey returns the limit key of a condition whose timer has expired. If the key failed,
// which makes the edge a dead letter, the object counts by itself.
func (s *Settings) DueLimitKey(d *event.Delta, v *Verdict) string {
	if v.Err != nil && s.Limit.On() {
		return ownLimitKey(d)
	}
	return v.LimitKey
}

// Leaves is the verdict that a condition no longer holds.
func (s *Settings) Leaves(ctx context.Context, d *event.Delta) Verdict {
	v := s.Verdict(ctx, d, filters.Match{Verdict: filters.Matched})
	if v.Err != nil { // Left must be reported even if the key fails
		s.count.Errors(ErrorKind(v.Err)).Inc()
		v.Err = nil
	}
	v.Condition = true
	return v
}

// Evaluate evaluates filter and key. With unseen false it skips the filter: the delta has passed it
// before a restart and stays pending, even if the objects that the filter looks up have changed. If
// the key fails in that case, the delta is ordered by its object.
//
// A delta of an object that the route does not see any more is filtered, except for the report that
// its own condition ended.
func (s *Settings) Evaluate(ctx context.Context, d *event.Delta, unseen bool) (v Verdict, filtered bool) {
	if !s.table.Sees(0, d) && !(queue.IsEdge(d) && d.Op == event.Left) {
		return Verdict{Lane: queue.ObjectKey(d)}, true
	}
	if s.HasCondition() {
		return s.evaluateEdge(ctx, d, unseen)
	}
	if !unseen {
		v = s.Verdict(ctx, d, filters.Match{Verdict: filters.Matched})
		if v.Err != nil {
			s.count.Errors(ErrorKind(v.Err)).Inc()
			v.Err = nil
		}
		return v, false
	}
	m := s.table.Evaluate(ctx, 0, d)
	return s.Verdict(ctx, d, m), m.Verdict == filters.Filtered
}

// evaluateEdge is Evaluate for a route with a condition. An edge that was reported stays pending. A
// delta on which the evaluation failed is dropped if it no longer fails, because later deltas have
// decided about the object since.
func (s *Settings) evaluateEdge(ctx context.Context, d *event.Delta, unseen bool) (v Verdict, filtered bool) {
	if queue.IsEdge(d) {
		v = s.Verdict(ctx, d, filters.Match{Verdict: filters.Matched})
		if !unseen && v.Err != nil {
			s.count.Errors(ErrorKind(v.Err)).Inc()
			v.Err = nil
		}
		return v, false
	}
	if m := s.table.Evaluate(ctx, 0, d); m.Verdict == filters.Failed {
		return s.Verdict(ctx, d, m), false
	}
	return v, true
}

// HoldKey returns the key under which a delete of d can be cancelled beside its name; empty: there
// is none. The key of a group is not used, because a new member does not replace a deleted one.
func (s *Settings) HoldKey(d *event.Delta, lane queue.Key) string {
	if s.Grouped || lane == queue.ObjectKey(d) {
		return ""
	}
	return lane.Name
}

// maxKey is the length in bytes up to which a key is kept as it is: a namespace, a name and a word
// before them fit. Keys are derived from the content of objects, so they can be as long as these,
// and a limit stores many of them.
const maxKey = 512

// short returns key, or its hash if it is longer than maxKey. The hash serves as well, because keys
// are only compared, and passed on to sinks as ordering keys.
func short(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
