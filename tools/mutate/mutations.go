package main

// mutation breaks one promise.
type mutation struct {
	guarantee string // the ID of its row in docs/GUARANTEES.md
	promise   string // that the mutation breaks
	file      string
	old, now  string   // old occurs once in the file
	packages  []string // whose tests have to notice it
	tests     string   // a pattern; empty: all of the packages
}

var mutations = []mutation{
	{
		guarantee: "kills-lose-nothing", promise: "cache, deltas and position change under one lock",
		file: "pkg/informer/internal/persist/change.go",
		old: `	for _, admission := range c.Admissions {
		admission.Commit()
	}
	s.Position.arrive(c.Applied)`,
		now: `	s.Position.arrive(c.Applied)
	s.mu.Unlock()
	for _, admission := range c.Admissions {
		admission.Commit()
	}
	s.mu.Lock()`,
		packages: []string{"./pkg/informer/...", "./test/sim"},
	},
	{
		guarantee: "delete-has-state", promise: "intents are written before a delivery",
		file:     "internal/checkpoint/write.go",
		old:      `tx.intents(watch, intentsOf(objects))`,
		now:      `tx.intents(watch, intentsOf(objects[:0]))`,
		packages: []string{"./internal/checkpoint/..."},
	},
	{
		guarantee: "delete-has-state", promise: "a transaction takes over the intents of the journal",
		file:     "internal/checkpoint/journal.go",
		old:      `tx.intents(watch, left)`,
		now:      `tx.intents(watch, left[:0])`,
		packages: []string{"./internal/checkpoint"},
	},
	{
		guarantee: "deleted-while-down", promise: "a delivery waits until its object is on disk",
		file: "internal/checkpoint/writer.go",
		old:  `	return w.waiting.gates[0]`,
		now: `	open := make(chan struct{})
	close(open)
	return open`,
		packages: []string{"./internal/checkpoint", "./internal/engine", "./test/sim"},
	},
	{
		guarantee: "delete-holds", promise: "delete holds survive a restart",
		file:     "internal/pipeline/condition/holds.go",
		old:      `		failed = errors.Join(failed, h.held.Restore(record, decode, now))`,
		now:      `		_, _, failed = record, decode, errors.Join(failed)`,
		packages: []string{"./internal/pipeline/..."},
	},
	{
		guarantee: "incomplete-list", promise: "a list without its last pages is refused",
		file: "pkg/informer/internal/client/response.go",
		old: `		if err != nil && token != "" && IsExpired(err) {
`,
		now: `		if err != nil && token != "" {
			return all, nil
		}
		if err != nil && token != "" && IsExpired(err) {
`,
		packages: []string{"./pkg/informer/..."},
	},
	{
		guarantee: "debounce", promise: "the net change has the first old object",
		file:     "internal/pipeline/queue/coalesce.go",
		old:      `net(a, b, event.Updated, a.Old)`,
		now:      `net(a, b, event.Updated, b.Old)`,
		packages: []string{"./internal/pipeline/..."},
	},
	{
		guarantee: "no-silent-loss", promise: "failed deltas become dead letters",
		file: "internal/pipeline/deliver/failure.go",
		old: `func (b *Batch) writeDeadLetters(ctx context.Context) bool {
`,
		now: `func (b *Batch) writeDeadLetters(ctx context.Context) bool {
	if ctx != nil {
		return true
	}
`,
		packages: []string{"./internal/pipeline/..."},
	},
	{
		guarantee: "limit", promise: "a limit counts its burst",
		file:     "internal/pipeline/rules/limit.go",
		old:      `	if full-at <= l.span() {`,
		now:      `	if full-at <= l.span()+l.cfg.Every {`,
		packages: []string{"./internal/pipeline/rules"},
	},
	{
		guarantee: "secrets-off-disk", promise: "the disk has only the identity of a Secret",
		file:     "internal/checkpoint/record.go",
		old:      `	if bareOnly || secret(o) {`,
		now:      `	if bareOnly {`,
		packages: []string{"./internal/checkpoint/..."},
	},
	{
		guarantee: "guest-grants", promise: "a guest has only the functions of its allow",
		file:     "pkg/plugins/internal/guest/host/functions.go",
		old:      `		return len(a.Lookup) > 0`,
		now:      `		return true`,
		packages: []string{"./pkg/plugins/..."},
	},
	{
		guarantee: "compiled-private", promise: "machine code is read only where no other user writes",
		file:     "pkg/plugins/internal/guest/engine/codecache.go",
		old:      `	if err := codefolder.Check(c.dir); err != nil { // its content is executed`,
		now:      `	if err := codefolder.Check(c.dir); err == nil && false { // its content is executed`,
		packages: []string{"./pkg/plugins/internal/guest/engine"},
	},
	{
		guarantee: "fleet-fenced", promise: "a batch is stored only if the lead record is still that of its publisher",
		file:     "internal/fleet/fence/wire.go",
		old:      `	h[lastHeader] = []string{strconv.FormatUint(last, 10)}`,
		now:      `	_ = strconv.FormatUint(last, 10)`,
		packages: []string{"./internal/fleet/fence"},
	},
	{
		guarantee: "gap-net-change", promise: "objects that a list lacks are deleted",
		file:     "pkg/informer/internal/apply/replace.go",
		old:      `held, ok := holdMissing(ctx, a, items)`,
		now:      `held, ok := 0, true`,
		packages: []string{"./test/chaos"}, tests: "^TestGapAfterCompaction$",
	},
}
