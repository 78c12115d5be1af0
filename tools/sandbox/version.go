//go:build !kubernetes130

package main

import (
	"context"

	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubeoptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// complete makes the feature gates and emulated versions of the flags take effect, and fills in the
// defaults.
func complete(ctx context.Context, s *kubeoptions.ServerRunOptions) (kubeoptions.CompletedOptions, error) {
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return kubeoptions.CompletedOptions{}, err
	}
	return s.Complete(ctx)
}

// serve runs the API server until ctx ends.
func serve(ctx context.Context, completed kubeoptions.CompletedOptions) error {
	return app.Run(ctx, completed)
}
