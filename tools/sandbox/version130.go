//go:build kubernetes130

package main

import (
	"context"

	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubeoptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// complete fills in the defaults. Kubernetes 1.30 has no emulated versions, and its feature gates
// take effect when they are parsed.
func complete(_ context.Context, s *kubeoptions.ServerRunOptions) (kubeoptions.CompletedOptions, error) {
	return s.Complete()
}

// serve runs the API server until ctx ends.
func serve(ctx context.Context, completed kubeoptions.CompletedOptions) error {
	return app.Run(completed, ctx.Done())
}
