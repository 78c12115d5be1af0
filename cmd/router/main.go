// Command router routes the changes of a Kubernetes cluster as a configuration file says. Package
// internal/commands lists its commands, package pkg/plugins/all its kinds of handlers and sinks.
package main

import (
	"github.com/deltarouter/deltarouter/pkg/plugins/all"
	"github.com/deltarouter/deltarouter/pkg/router"
)

func main() { router.Main(all.Kinds()...) }
