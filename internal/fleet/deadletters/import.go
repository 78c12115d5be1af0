package deadletters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
)

const (
	// atOnce is the number of dead letters that are imported in one transaction.
	atOnce = 100
	// linger is the wait for further messages of a transaction.
	linger = 100 * time.Millisecond
	// idle is the longest wait for a message, so that old messages are purged without new ones.
	idle = time.Minute
	// keep is the time for which an imported message stays in the stream: the next leader imports
	// it again if the last transactions of this one did not reach it.
	keep = 10 * time.Minute
)

// Import imports the dead letters of workers into store until ctx ends. The leader runs it. The
// position is part of the state file, so each dead letter is imported once, also by the leader that
// takes over.
func Import(ctx context.Context, conn *fleet.Conn, store *checkpoint.Letters, log *slog.Logger) {
	(&importer{conn: conn, store: store, log: log, idle: idle}).repeat(ctx)
}

type importer struct {
	conn  *fleet.Conn
	store *checkpoint.Letters
	log   *slog.Logger
	idle  time.Duration

	stream jetstream.Stream
	mark   uint64    // position at the time marked
	marked time.Time // zero: there is no mark
}

// repeat calls run until ctx ends.
func (i *importer) repeat(ctx context.Context) {
	wait := &backoff.Series{Policy: backoff.Policy{Min: time.Second, Max: time.Minute}}
	for ctx.Err() == nil {
		err := i.run(ctx, wait.Reset)
		if ctx.Err() != nil {
			return
		}
		i.log.Warn("fleet: the dead letters of workers cannot be imported, trying again", "err", err)
		_ = wait.Wait(ctx, 0) // the error is ctx's
	}
}

// run imports until an error. done is called after each success.
func (i *importer) run(ctx context.Context, done func()) (err error) {
	if i.stream, err = i.conn.JS.Stream(ctx, i.conn.Names.DeadLetters()); err != nil {
		return err
	}
	at := i.store.Imported()
	if created := i.stream.CachedInfo().Created.UnixNano(); at.Stream != created {
		at = checkpoint.LettersSource{Stream: created} // a new stream has new numbers
	}
	decoder, err := newDecoder()
	if err != nil {
		return err
	}
	defer decoder.close()
	reader, err := i.conn.ReadStream(ctx, i.conn.Names.DeadLetters(), "", at.Seq+1)
	if err != nil {
		return err
	}
	defer reader.Stop()
	for ctx.Err() == nil {
		messages, err := i.fetch(ctx, reader)
		if err != nil {
			return err
		}
		if at, err = i.take(ctx, decoder, messages, at); err != nil {
			return err
		}
		done()
		i.purge(ctx, at) // not before: the file has them now
	}
	return nil
}

// message is a message of the stream.
type message struct {
	jetstream.Msg
	seq uint64
}

// fetch returns the next messages, or none if none comes for some time. It ends with ctx at once: a
// leader that stops frees the Lease after it.
func (i *importer) fetch(ctx context.Context, reader *fleet.Reader) (all []message, err error) {
	for wait := i.idle; len(all) < atOnce; wait = linger {
		next, cancel := context.WithTimeout(ctx, wait)
		m, about, err := reader.Next(next)
		cancel()
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, message{m, about.Sequence.Stream})
	}
	return all, nil
}

// take imports the messages of one batch and returns the position behind them.
func (i *importer) take(ctx context.Context, d *decoder, messages []message, at checkpoint.LettersSource) (checkpoint.LettersSource, error) {
	if len(messages) == 0 {
		return at, nil
	}
	var letters []checkpoint.Letter
	before := at
	for _, m := range messages {
		err := i.conn.Workers.Verify(m.Headers().Get(fleet.MACHeader), fleet.PurposeLetter, m.Subject(), "", m.Data())
		if errors.Is(err, fleet.ErrOtherKey) { // maybe of a worker: it waits
			return before, fmt.Errorf("a dead letter: %w", err)
		}
		at.Seq = m.seq
		if err != nil {
			i.conn.Refuse(fleet.RefusedLetter, fmt.Errorf("a dead letter: %w", err))
			continue
		}
		letter, err := d.decode(&nats.Msg{Data: m.Data(), Header: m.Headers()})
		if err != nil {
			i.log.Error("fleet: a dead letter of a worker cannot be read and is skipped; the stream keeps it for a while",
				"stream", i.conn.Names.DeadLetters(), "sequence", at.Seq, "err", err)
			continue
		}
		letters = append(letters, letter)
	}
	// The position is stored with the letters, also behind those that were left out.
	if err := i.store.Import(ctx, letters, at); err != nil {
		return before, fmt.Errorf("state.dir: %w", err)
	}
	return at, nil
}

// purge removes messages that were imported long ago, so that dead letters that were dropped by
// hand do not stay at the servers.
func (i *importer) purge(ctx context.Context, at checkpoint.LettersSource) {
	if !i.marked.IsZero() && time.Since(i.marked) < keep {
		return
	}
	if i.mark > 0 {
		_ = i.stream.Purge(ctx, jetstream.WithPurgeSequence(i.mark+1)) // else with the next mark
	}
	i.mark, i.marked = at.Seq, time.Now()
}
