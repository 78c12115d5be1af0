package main

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/extism"
	"github.com/deltarouter/deltarouter/pkg/plugins/js"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdio"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

// phaseScript is the handler of the measurement in JavaScript.
const phaseScript = "export default (delta) => [{data: {pod: delta.name, phase: delta.object.status.phase}}];"

// compareKinds compares handlers of several kinds that read one field of a pod and make one event.
// The last one is a module of the kind wasm.
func compareKinds(ctx context.Context, out *report.Report, dir string, rounds int) error {
	phase, err := build(ctx, dir, "extism-phase", "guests/testdata/extismphase")
	if err != nil {
		return err
	}
	module, err := build(ctx, dir, "phase", "guests/testdata/phase")
	if err != nil {
		return err
	}
	batch, err := deltas(batchSize)
	if err != nil {
		return err
	}
	var all []contender
	for _, c := range []struct {
		name   string
		kind   plugins.HandlerKind
		config string
	}{
		{"js", js.Kind(), fmt.Sprintf("source: %q", phaseScript)},
		{"js, fresh: true", js.Kind(), fmt.Sprintf("{source: %q, fresh: true}", phaseScript)},
		{"extism, Go that looks for the text of the field", extism.Kind(), fmt.Sprintf("module: %q", phase)},
		{"stdio, C that looks for the text of the field", stdio.Kind(), fmt.Sprintf("module: %q", "../../examples/plugins/command-c/command-c.wasm")},
		{"wasm, Go with Delta.Path", wasm.Kind(), fmt.Sprintf("module: %q", module)},
	} {
		h, _, err := openKind(ctx, c.kind, c.config, "")
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer h.Close(ctx)
		all = append(all, contender{c.name, func() error { return makesEvents(ctx, h, batch) }, len(batch)})
	}
	title := fmt.Sprintf("Handlers that read fields of an object of %d bytes and make an event, CPU per object", len(batch[0].New.JSON()))
	return compare(out, "kinds", title, rounds, 20, all)
}

// makesEvents passes deltas to a handler that makes one event of each.
func makesEvents(ctx context.Context, h plugins.Handler, batch []*event.Delta) error {
	results, err := h.Handle(ctx, batch)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Verdict != plugins.OK || len(r.Events) != 1 {
			return fmt.Errorf("%s with %d events: %w", r.Verdict, len(r.Events), r.Err)
		}
	}
	return nil
}
