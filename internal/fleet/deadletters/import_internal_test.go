package deadletters

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

// TestStopDuringFetch shows that the import ends with its context, also while it waits for dead
// letters: a leader that stops frees the Lease after it. The wait of this test is an hour.
func TestStopDuringFetch(t *testing.T) {
	t.Parallel()
	const patience = time.Minute
	c := natstest.Start(t, natstest.Config{})
	conn, err := fleet.Connect(t.Context(), &config.Fleet{Name: "f", NATS: config.NATS{Servers: c.URLs()}, Replicas: 1}, t.Name(), slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, conn.Close()) })
	waiting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Succeed(t, conn.Ready(waiting))
	must.Succeed(t, conn.Ensure(waiting))
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(t.TempDir(), "state")})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, db.Close()) })
	letters, err := db.Letters(checkpoint.LettersConfig{})
	must.Succeed(t, err)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&importer{conn: conn, store: letters, log: slog.New(slog.DiscardHandler), idle: time.Hour}).repeat(ctx)
	}()
	stream, err := conn.JS.Stream(waiting, conn.Names.DeadLetters())
	must.Succeed(t, err)
	fetches := func() bool {
		for info := range stream.ListConsumers(waiting).Info() {
			if info.NumWaiting > 0 {
				return true
			}
		}
		return false
	}
	for !fetches() {
		must.Succeed(t, waiting.Err())
	}
	stop()
	select {
	case <-ended:
	case <-waiting.Done():
		t.Error("the import still waits for dead letters")
	}
}
