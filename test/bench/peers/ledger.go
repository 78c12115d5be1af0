package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// change is one write of this command. Each state of an object has a stamp, a number that no other
// state has; the delete has none.
type change struct {
	object string
	stamp  int // 0: the delete
}

// told is a statement of a POST about an object.
type told struct {
	object  string
	stamp   int
	deleted bool
}

// change returns the change that is told.
func (t told) change() change {
	if t.deleted {
		return change{object: t.object}
	}
	return change{t.object, t.stamp}
}

// record has the times of a change.
type record struct {
	sent time.Time
	took time.Duration // until it was told for the first time
	told int           // how often
}

// ledger compares the changes with the POSTs of a program.
type ledger struct {
	mu      sync.Mutex
	stamp   int
	records map[change]*record
	last    time.Time // a statement came
	known   int       // statements about changes that were made
	again   int       // those about changes that were told before
	unknown int       // statements about other changes
}

func newLedger() *ledger { return &ledger{records: map[change]*record{}} }

// next records that an object is about to get a new state.
func (l *ledger) next(object string) change {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stamp++
	c := change{object, l.stamp}
	l.records[c] = &record{sent: time.Now()}
	return c
}

// deletes records that an object is about to be deleted.
func (l *ledger) deletes(object string) change {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := change{object: object}
	l.records[c] = &record{sent: time.Now()}
	return c
}

// arrived records a statement.
func (l *ledger) arrived(t told, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = now
	r := l.records[t.change()]
	switch {
	case r == nil:
		l.unknown++
		return
	case r.told > 0:
		l.again++
	default:
		r.took = now.Sub(r.sent)
	}
	r.told++
	l.known++
}

// lost returns the number of changes that were never told.
func (l *ledger) lost(changes []change) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if l.records[c].told == 0 {
			n++
		}
	}
	return n
}

// repeats returns the number of statements about changes that were told before.
func (l *ledger) repeats() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.again
}

// statements returns the number of changes that were told, with repeats.
func (l *ledger) statements() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// quietFor returns the time since the last statement.
func (l *ledger) quietFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.last)
}

// await waits until all changes are told, at most for patience.
func (l *ledger) await(ctx context.Context, patience time.Duration, changes []change) error {
	for until := time.Now().Add(patience); l.lost(changes) > 0 && time.Now().Before(until); {
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// latency returns the time until half and 99 % of the changes were told for the first time. Changes
// that were not told do not count.
func (l *ledger) latency(changes []change) (p50, p99 time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	for _, c := range changes {
		if r := l.records[c]; r.told > 0 {
			took = append(took, r.took)
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[(len(took)-1)/2], took[(len(took)-1)*99/100]
}

// receiver is the webhook of all programs.
type receiver struct {
	*ledger

	http   *httptest.Server
	parse  func(http.Header, []byte) ([]told, error)
	answer string
	down   atomic.Bool // it answers 503
	mu     sync.Mutex
	err    error // the first POST that could not be read
}

// startReceiver starts the receiver of a program.
func startReceiver(p *program) *receiver {
	r := &receiver{ledger: newLedger(), parse: p.parse, answer: cmp.Or(p.answer, "{}")}
	r.http = httptest.NewServer(r)
	return r
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	now := time.Now()
	if r.down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	statements, parseErr := r.parse(request.Header, body)
	if err := errors.Join(err, parseErr); err != nil {
		r.mu.Lock()
		r.err = cmp.Or(r.err, err)
		r.mu.Unlock()
	}
	for _, t := range statements {
		r.arrived(t, now)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, r.answer)
}

// problem returns the error of the first POST that could not be read.
func (r *receiver) problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// number returns the stamp of a text; -1 if it is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// sleep waits, unless the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
