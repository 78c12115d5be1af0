package condition

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// restore restores the conditions from the records of the checkpoint.
func (c *Conditions) restore(records []checkpoint.RuleRecord, limit *rules.Limit, now time.Time) (failed error) {
	if c.states == nil && hasKind(records, kindCondition, kindRescan) {
		c.open(limit) // the condition was removed: dirty returns the removal of all records
	}
	if c.states == nil {
		return nil
	}
	c.rescanned = false
	same := false
	for record := range ofKind(records, kindRescan) {
		same = string(record.Value) == c.cfg.When.Version
		c.first = false
		c.rescanned = same && !c.cfg.LooksUp()
		c.noted = c.rescanned
	}
	resource := func(source string) *event.Resource { return c.cfg.ResourceOf(source, c.cfg.FormerResource()) }
	for record := range ofKind(records, kindCondition) {
		if err := c.states.Restore(record, resource, now); err != nil {
			failed = err
		}
	}
	if c.cfg.HasCondition() && !same {
		c.states.ForgetFailures() // the failures belong to another condition
	}
	return failed
}

// dirty appends the changes since the last call.
func (c *Conditions) dirty(records []checkpoint.RuleRecord, now time.Time) []checkpoint.RuleRecord {
	if c.states == nil {
		return records
	}
	records = appendRecords(records, kindCondition, c.states.Dirty(now))
	if c.unpersisted != nil {
		c.inFlight, c.unpersisted = append(c.inFlight, c.unpersisted), nil
	}
	if !c.noted {
		c.noted = true
		records = append(records, checkpoint.RuleRecord{Kind: kindRescan, Value: c.rescannedWith()})
	}
	return records
}

// rescannedWith returns the Version of the condition with which all objects were evaluated: empty
// if it was another condition, or if objects are missed; nil if there was none.
func (c *Conditions) rescannedWith() []byte {
	switch {
	case c.rescanned && len(c.missed.objects) == 0:
		return []byte(c.cfg.When.Version)
	case c.rescanned || !c.first:
		return []byte{}
	}
	return nil
}
