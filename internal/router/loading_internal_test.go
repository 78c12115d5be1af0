package router

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestLoading: a router is loaded ten seconds after all sources have their objects, a cut has them
// and they are compressed, and after five minutes at the latest.
func TestLoading(t *testing.T) {
	for name, c := range map[string]struct {
		synced, saved, compressed, want time.Duration
	}{
		"synced last": {3 * time.Second, 0, 0, 13 * time.Second},
		"saved later": {3 * time.Second, 2 * time.Second, time.Second, 16 * time.Second},
		"never":       {time.Hour, 0, 0, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, last := make(chan struct{}), make(chan struct{})
				close(first)
				ready := time.AfterFunc(c.synced, func() { close(last) })
				defer ready.Stop()
				began := time.Now()
				loaded := awaitLoaded(t.Context(), []<-chan struct{}{last, first},
					func(context.Context) { time.Sleep(c.saved) }, func(context.Context) { time.Sleep(c.compressed) })
				if took := time.Since(began); took != c.want || loaded != (name != "never") {
					t.Errorf("loaded: %t after %v, want %v", loaded, took, c.want)
				}
			})
		})
	}
}
