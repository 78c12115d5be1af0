package main

import (
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/pkg/plugins/extism"
	"github.com/deltarouter/deltarouter/pkg/plugins/file"
	"github.com/deltarouter/deltarouter/pkg/plugins/js"
	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
	"github.com/deltarouter/deltarouter/pkg/plugins/kubernetes"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/otlp"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdio"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
)

// components is THE list of the kinds of handlers and sinks: a new kind of handler or sink is one
// folder and one line here.
func components() compile.Components {
	return compile.Components{
		Handlers: []plugins.HandlerKind{
			extism.Kind(),
			js.Kind(),
			process.Kind(),
			stdio.Kind(),
			wasm.Kind(),
		},
		Sinks: []plugins.SinkKind{
			discard.Kind(),
			file.Kind(),
			kubernetes.Kind(),
			kafka.Kind(),
			nats.Kind(),
			otlp.Kind(),
			stdout.Kind(),
			webhook.Kind(),
		},
		Emit: emit.New,
	}
}
