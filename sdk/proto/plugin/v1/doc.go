// Package pluginv1 is the protocol between the router and a native plugin, generated from
// plugin.proto. The author of a plugin in Go imports sdk/process instead.
package pluginv1

//go:generate sh -c "cd ../../../../tools/pins && go run ./protoc ../../sdk/proto plugin/v1/plugin.proto"
