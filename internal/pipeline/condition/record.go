package condition

import (
	"iter"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
)

// The kinds of the records in the checkpoint. The route has further kinds of its own.
const (
	kindCondition = checkpoint.KindCondition
	kindRescan    = checkpoint.KindRescan
	kindHold      = checkpoint.KindHold
	kindLimit     = checkpoint.KindLimit
)

// ofKind yields the records of one kind.
func ofKind(records []checkpoint.RuleRecord, kind byte) iter.Seq[rules.Record] {
	return func(yield func(rules.Record) bool) {
		for _, record := range records {
			if record.Kind == kind && !yield(rules.Record{Key: string(record.Key), Value: record.Value}) {
				return
			}
		}
	}
}

// hasKind reports whether there is a record of one of the kinds.
func hasKind(records []checkpoint.RuleRecord, kinds ...byte) bool {
	return slices.ContainsFunc(records, func(record checkpoint.RuleRecord) bool { return slices.Contains(kinds, record.Kind) })
}

func appendRecords(records []checkpoint.RuleRecord, kind byte, changed []rules.Record) []checkpoint.RuleRecord {
	records = slices.Grow(records, len(changed))
	for _, record := range changed {
		records = append(records, checkpoint.RuleRecord{Kind: kind, Key: []byte(record.Key), Value: record.Value})
	}
	return records
}

// Missed adapts the records of a route that was absent for a while: all objects must be evaluated
// again.
func Missed(records []checkpoint.RuleRecord) []checkpoint.RuleRecord {
	missed := slices.Clone(records)
	for i := range missed {
		if missed[i].Kind == kindRescan {
			missed[i].Value = []byte{}
		}
	}
	return missed
}
