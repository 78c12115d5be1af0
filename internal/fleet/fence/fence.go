package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/fleet"
)

// ErrDeposed says that another writer has opened the stream. It is final for a publisher.
var ErrDeposed = errors.New("another member leads the stream now")

// ErrLeadGone says that the stream has no lead record any more: the stream was purged, or deleted
// and made again. It is final for a publisher. A member that still holds the Lease may open the
// stream again.
var ErrLeadGone = errors.New("the lead record is gone: the stream was purged, or deleted and made again")

// A RefusedError says that the server refuses a batch for a reason that a repetition does not
// change, like a message that is larger than the stream permits. Nothing was stored.
type RefusedError struct {
	Code int // JetStream's number of the error; 0: refused before it was sent
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("NATS refuses the batch: %s (%d)", e.Text, e.Code)
}

func isRefused(err error) bool {
	var e *RefusedError
	return errors.As(err, &e)
}

// Bounds of a batch. MaxMessages and MaxBytes are the sizes that Split makes: larger batches only
// increase the latency. Publish takes batches up to the hard bounds, for the parts of one message.
const (
	MaxMessages = 200
	MaxBytes    = 1 << 20

	HardMessages = 999 // the server's bound is 1,000, and the lead record is one of them
	HardBytes    = 16 << 20
)

// Config describes a publisher.
type Config struct {
	Conn   *nats.Conn
	Stream string
	Lead   string // subject of the lead record, one of the stream's
	Holder string // name of this member, for the lead record
	Note   []byte // note of the first lead record
	Keep   bool   // the first lead record has the note of the record before it
	After  uint64 // the term is larger than this one, even if the stream was made again
	Log    *slog.Logger
	// Keys sign the lead records. A record without their signature is no record: it is replaced,
	// after Refused was called with the reason. nil: there are none.
	Keys    *fleet.Keys
	Refused func(reason error)
	// Missing is called when no server has had the stream for a while, so that it can be made again.
	// Its error is the reason why it cannot be. nil: nothing is made.
	Missing func(ctx context.Context) error
	// Failing is called after each failed attempt to store a batch, with the reason, and with nil
	// when one is stored again; nil: the log suffices.
	Failing func(error)

	attempt time.Duration // time limit of one request; 0: the default
}

// A Publisher appends batches to a stream until it is deposed. It is safe for concurrent use. It
// has no goroutine and needs no Close.
type Publisher struct {
	config  Config
	id      string
	term    uint64
	deposed chan struct{}

	turn  chan struct{} // holds a token while a caller uses the fields below
	last  uint64        // sequence of the lead record
	batch uint64        // number of the last batch that was tried
	final error         // ErrDeposed or ErrLeadGone
	fails bool          // Config.Failing was called with a reason
}

// Open writes the lead record of a new term: from then on the batches of earlier holders are
// refused. before is the record that it replaced, the zero Record in a new stream. Open retries
// until it succeeds or ctx ends. Two members that open one stream depose each other, so ctx ends
// with the Lease of its member.
func Open(ctx context.Context, config Config) (p *Publisher, before Record, err error) {
	if config.attempt == 0 {
		config.attempt = 2 * time.Second
	}
	p = &Publisher{config: config, id: nuid.Next(), deposed: make(chan struct{}), turn: make(chan struct{}, 1)}
	retry := p.retries("the stream cannot be opened")
	contended := backoff.Series{Policy: backoff.Policy{Min: time.Millisecond, Max: 2 * time.Millisecond}}
	var mine Record // of the attempt whose outcome is unknown
	for {
		found, seq, err := p.lead(ctx)
		if err == nil && found.ID == p.id { // an attempt without an answer was stored
			p.term, p.last = mine.Term, seq
			return p, before, nil
		}
		if err == nil {
			if config.Keep {
				config.Note = found.Note
			}
			term := max(found.Term, config.After)
			if seq > 0 && found.ID == "" { // it replaced a record with an unknown term
				term = max(term, uint64(time.Now().UnixMilli())) //nolint:gosec // after 1970
			}
			before, mine = found, p.record(term+1, 0, config.Note)
			if p.last, err = p.one(ctx, mine, seq); err == nil {
				p.term = mine.Term
				return p, before, nil
			}
		}
		if isRefused(err) {
			return nil, Record{}, err
		}
		if errors.Is(err, errConflict) { // a busy writer: each attempt must be between two of its batches
			err = contended.Wait(ctx, 0)
		} else {
			err = retry.wait(ctx, err)
		}
		if err != nil {
			return nil, Record{}, fmt.Errorf("open stream %s: %w", config.Stream, err)
		}
	}
}

// Term returns the term of this publisher.
func (p *Publisher) Term() uint64 { return p.term }

// Deposed is closed when the publisher has learned that another member opened the stream. It
// learns that only from the answer to a batch.
func (p *Publisher) Deposed() <-chan struct{} { return p.deposed }

// Publish appends messages as one batch, all or nothing, and returns the sequence of the lead
// record behind them; note becomes a part of that record. Callers take turns in the order of their
// calls. Publish adds headers to messages, and removes those that earlier attempts added; the
// caller leaves them alone until it returns.
//
// It retries until the batch is stored, and returns early only with
//   - ErrDeposed or ErrLeadGone: nothing is stored from now on. The batch was stored before the
//     stream was opened or purged if an attempt to store it had no answer;
//   - a RefusedError: nothing was stored, other batches may be;
//   - the error of ctx: then the batch may have been stored, or may still be.
func (p *Publisher) Publish(ctx context.Context, messages []*nats.Msg, note []byte) (uint64, error) {
	if err := fits(messages); err != nil {
		return 0, err
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if p.final != nil {
		return 0, p.final
	}
	p.batch++
	seq, err := p.store(ctx, messages, p.record(p.term, p.batch, note))
	if errors.Is(err, ErrDeposed) || errors.Is(err, ErrLeadGone) {
		p.final = err
	}
	if errors.Is(err, ErrDeposed) {
		close(p.deposed)
	}
	return seq, err
}

// store tries to store a batch until its outcome is known or ctx ends.
func (p *Publisher) store(ctx context.Context, messages []*nats.Msg, record Record) (uint64, error) {
	retry := p.retries("a batch cannot be stored")
	for {
		seq, err := p.send(ctx, messages, record)
		if err == nil {
			p.last = seq
			p.failing(nil)
			retry.done()
			return seq, nil
		}
		if isRefused(err) {
			return 0, err
		}
		// An attempt without an answer may have been stored. The next one then finds another lead
		// record than it expects, and the record tells which batch was the last one.
		if errors.Is(err, errConflict) {
			stored, err := p.resolve(ctx, record.Batch)
			if stored || final(err) {
				return p.last, err
			}
		}
		// A stream is also missing for a moment while its servers elect a leader.
		if errors.Is(err, errMissing) && p.config.Missing != nil && retry.failures >= quietFailures-1 {
			err = cmp.Or(p.config.Missing(ctx), err)
		}
		p.failing(err)
		if err := retry.wait(ctx, err); err != nil {
			return 0, fmt.Errorf("publish to stream %s: %w", p.config.Stream, err)
		}
	}
}

func (p *Publisher) failing(err error) {
	if p.config.Failing != nil && (err != nil || p.fails) {
		p.fails = err != nil
		p.config.Failing(err)
	}
}

func final(err error) bool { return errors.Is(err, ErrDeposed) || errors.Is(err, ErrLeadGone) }

// resolve reads the lead record after the server refused a batch because of it. It reports whether
// the record belongs to that batch. A record of an earlier batch of p, whose caller did not wait
// for its outcome, becomes the one to expect.
func (p *Publisher) resolve(ctx context.Context, batch uint64) (stored bool, err error) {
	found, seq, err := p.lead(ctx)
	if err != nil {
		return false, err
	}
	if seq == 0 {
		return false, fmt.Errorf("stream %s: %w", p.config.Stream, ErrLeadGone)
	}
	if found.ID == p.id {
		p.last = seq
		return found.Batch == batch, nil
	}
	if p.config.Keys != nil {
		foreign, old := found.ID == "", found.Term < p.term
		if old && !foreign {
			p.config.Refused(fmt.Errorf("the lead record of term %d was stored again in term %d", found.Term, p.term))
		}
		if foreign || old { // the batch is published again, as it may not be stored
			p.last = seq
			return false, nil
		}
	}
	return false, fmt.Errorf("stream %s: %w: %s, term %d", p.config.Stream, ErrDeposed, found.Holder, found.Term)
}

// retrying waits between attempts. It logs when they have failed for a while, and when they succeed
// again: two writers that take turns, or a new leader of the stream, are over at once.
type retrying struct {
	pause    backoff.Series
	log      *slog.Logger
	failed   string
	failures int
}

const quietFailures = 4

func (p *Publisher) retries(failed string) *retrying {
	policy := backoff.Policy{Min: 20 * time.Millisecond, Max: time.Second}
	return &retrying{pause: backoff.Series{Policy: policy}, log: p.config.Log.With("stream", p.config.Stream), failed: failed}
}

func (r *retrying) wait(ctx context.Context, cause error) error {
	if err := r.pause.Wait(ctx, 0); err != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	if r.failures++; r.failures == quietFailures {
		r.log.Warn("fleet: a stream of NATS takes nothing; the router retries", "what", r.failed, "err", cause)
	}
	return nil
}

func (r *retrying) done() {
	if r.failures >= quietFailures {
		r.log.Info("fleet: the stream takes batches again", "failures", r.failures)
	}
}
