package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rules"
)

// farewell says that nothing is known under a name.
func (lv *level) farewell() (records []checkpoint.RuleRecord) {
	for _, key := range lv.Keys() {
		records = append(records, checkpoint.RuleRecord{Kind: kindCondition, Key: []byte(key)})
	}
	return append(records, checkpoint.RuleRecord{Kind: kindLook})
}

// restoreLevel takes up what was known before.
func (r *route) restoreLevel(records []checkpoint.RuleRecord) (failed error) {
	if r.level == nil && slices.ContainsFunc(records, func(r checkpoint.RuleRecord) bool { return r.Kind == kindCondition }) {
		r.newLevel() // the condition was removed
		r.level.Configure(rules.ConditionConfig{}, r.now())
	}
	for _, record := range records {
		if record.Kind == kindAbsence {
			failed = errors.Join(failed, r.restoreAbsent(record))
		}
	}
	if r.level == nil {
		return failed
	}
	r.level.looked = false
	for _, record := range records {
		switch record.Kind {
		case kindLook:
			r.level.first = false
			r.level.looked = string(record.Value) == r.cfg.When.Version && r.cfg.Ready == nil
			r.level.noted = r.level.looked
		case kindCondition:
			err := r.level.Restore(rules.Record{Key: string(record.Key), Value: record.Value}, r.resourceOf, r.now())
			if err != nil {
				failed = fmt.Errorf("%s: %w", r.cfg.Name, err)
			}
		}
	}
	if r.isLevel() {
		r.showLevel()
	}
	return failed
}

// Missed returns what the rules of a route knew that was given nothing for a while: its condition has to be asked about all objects.
func Missed(records []checkpoint.RuleRecord) []checkpoint.RuleRecord {
	missed := slices.Clone(records)
	for i := range missed {
		if missed[i].Kind == kindLook {
			missed[i].Value = []byte{}
		}
	}
	return missed
}

func (r *route) resourceOf(source string) *event.Resource {
	if r.cfg.When.Resource != nil {
		if known := r.cfg.When.Resource(source); known != nil {
			return known
		}
	}
	return &event.Resource{}
}

// lookedWith returns which condition all objects were looked at with: empty if another one than that of now, nil if none.
func (r *route) lookedWith() []byte {
	switch {
	case r.level.looked:
		return []byte(r.cfg.When.Version)
	case !r.level.first:
		return []byte{}
	}
	return nil
}

// dirtyLevel hands over what changed in what the condition knows.
func (r *route) dirtyLevel() (records []checkpoint.RuleRecord) {
	records, r.farewell = append(r.farewell, r.dirtyAbsent()...), nil
	if r.level == nil {
		return records
	}
	for _, record := range r.level.Dirty(r.now()) {
		records = append(records, checkpoint.RuleRecord{Kind: kindCondition, Key: []byte(record.Key), Value: record.Value})
	}
	if r.level.gate != nil {
		r.level.saving, r.level.gate = append(r.level.saving, r.level.gate), nil
	}
	if !r.level.noted {
		r.level.noted = true
		records = append(records, checkpoint.RuleRecord{Kind: kindLook, Value: r.lookedWith()})
	}
	return records
}
