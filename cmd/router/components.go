package main

import (
	"github.com/deltarouter/deltarouter/internal/app"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/pkg/plugins/emit"
	"github.com/deltarouter/deltarouter/pkg/plugins/file"
	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
	"github.com/deltarouter/deltarouter/pkg/plugins/kubernetes"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/otlp"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
	"github.com/deltarouter/deltarouter/pkg/plugins/route"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
)

// components is THE list of what the router is made of: a new kind of handler or sink is one folder and one line here.
func components() app.Components {
	return app.Components{
		Handlers: []plugins.Factory[plugins.Handler]{
			process.Factory(),
			wasm.Factory(),
		},
		Sinks: []plugins.Factory[plugins.Sink]{
			discard.Factory(),
			file.Factory(),
			kubernetes.Factory(),
			kafka.Factory(),
			nats.Factory(),
			otlp.Factory(),
			route.Factory(),
			stdout.Factory(),
			webhook.Factory(),
		},
		Emit: emit.New,
	}
}
