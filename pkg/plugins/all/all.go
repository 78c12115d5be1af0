// Package all lists the kinds of handlers and sinks of this project. A router with further kinds
// passes them beside these to [github.com/deltarouter/deltarouter/pkg/router.Main].
package all

import (
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

// Kinds is THE list of the kinds of handlers and sinks: a new kind is one folder and one line here.
func Kinds() []plugins.AnyKind {
	return []plugins.AnyKind{
		// handlers
		extism.Kind(),
		js.Kind(),
		process.Kind(),
		stdio.Kind(),
		wasm.Kind(),
		// sinks
		discard.Kind(),
		file.Kind(),
		kubernetes.Kind(),
		kafka.Kind(),
		nats.Kind(),
		otlp.Kind(),
		stdout.Kind(),
		webhook.Kind(),
	}
}
