package route

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// counts are the counts of a route that survive restarts: the ends of its deltas. Those of a cut
// belong to the backlog of that cut, so a delta that is pending again after a crash has not been
// counted yet. A count of the deltas that matched would count these again: it is the sum of the
// ends and the pending ones.
type counts struct {
	spec.Tally

	since time.Time
	saved []uint64 // the values of the last record
}

// all returns the counts in the order of the record, to which later versions append.
func (c *counts) all() []*atomic.Uint64 {
	return []*atomic.Uint64{&c.Delivered, &c.Suppressed, &c.Coalesced, &c.Dropped, &c.DeadLettered, &c.Failed, &c.Shadowed}
}

// now returns the counts.
func (c *counts) now(pending int) spec.Counts {
	n := spec.Counts{
		Since: c.since, Delivered: c.Delivered.Load(), Suppressed: c.Suppressed.Load(), Coalesced: c.Coalesced.Load(), Dropped: c.Dropped.Load(),
		DeadLettered: c.DeadLettered.Load(), Failed: c.Failed.Load(), Shadowed: c.Shadowed.Load(),
	}
	n.Matched = n.Delivered + n.Suppressed + n.Coalesced + n.Dropped + n.DeadLettered + n.Shadowed + uint64(max(0, pending)) //nolint:gosec // not negative
	return n
}

// dirty appends the record, if it has changed since the last call.
func (c *counts) dirty(records []checkpoint.RuleRecord) []checkpoint.RuleRecord {
	values := make([]uint64, 0, len(c.all()))
	for _, one := range c.all() {
		values = append(values, one.Load())
	}
	if slices.Equal(values, c.saved) || c.saved == nil && !slices.ContainsFunc(values, func(n uint64) bool { return n > 0 }) {
		return records
	}
	c.saved = values
	value := binary.AppendVarint(nil, c.since.UnixMicro())
	for _, n := range values {
		value = binary.AppendUvarint(value, n)
	}
	return append(records, checkpoint.RuleRecord{Kind: checkpoint.KindCounts, Value: value})
}

var errCounts = errors.New("the record of the counts of a route is damaged: they begin at 0")

// restore adds the counts of the record, if there is one, and returns the other records.
func (c *counts) restore(records []checkpoint.RuleRecord) (others []checkpoint.RuleRecord, err error) {
	for _, r := range records {
		if r.Kind != checkpoint.KindCounts {
			others = append(others, r)
			continue
		}
		since, n := binary.Varint(r.Value)
		rest := r.Value[max(0, n):]
		var values []uint64
		for range c.all() {
			if value, size := binary.Uvarint(rest); size > 0 {
				values, rest = append(values, value), rest[size:]
			}
		}
		if n <= 0 || len(values) < len(c.all()) {
			err = errCounts
			continue
		}
		c.since, c.saved = time.UnixMicro(since), values
		for i, one := range c.all() {
			one.Add(values[i])
		}
	}
	return others, err
}
