package webhook

import (
	"context"
	"errors"
	"net/http"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// writeBatches posts the events in as few requests as maxBatch allows, in order. Once the receiver
// is unavailable, the rest is not tried.
func (s *sink) writeBatches(ctx context.Context, events []event.Event) []error {
	v := verdicts{n: len(events)}
	for i := range events {
		v.confidential = v.confidential || httpsink.IsConfidential(&events[i])
	}
	// of those that are CloudEvents
	texts, at := make([][]byte, 0, len(events)), make([]int, 0, len(events))
	for i := range events {
		m, err := encodeStructured(ctx, &events[i])
		if err != nil {
			v.set(i, s.named(err))
			continue
		}
		texts, at = append(texts, m.body), append(at, i)
	}
	for len(texts) > 0 {
		n, size := 0, 2
		for n < len(texts) && (n == 0 || size+len(texts[n])+1 <= int(s.maxBatch)) {
			size += len(texts[n]) + 1
			n++
		}
		if err := s.postBatch(ctx, &v, texts[:n], at[:n]); err != nil {
			for _, i := range at {
				v.setIfNone(i, err)
			}
			break
		}
		texts, at = texts[n:], at[n:]
	}
	return v.errs
}

// postBatch posts events as one request. If the receiver finds fault with its content, one of them
// is to blame, and it does not say which: then each half is posted by itself, until the ones that
// are rejected stand alone. The error, which is not about a rejection, means that all events
// without a verdict wait; those with one were delivered, or rejected, before.
func (s *sink) postBatch(ctx context.Context, v *verdicts, texts [][]byte, at []int) error {
	body := make([]byte, 0, 2+len(texts)*(len(texts[0])+1))
	body = append(body, '[')
	for i, text := range texts {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, text...)
	}
	err := s.post(ctx, newMessage(typeBatch, append(body, ']')), v.confidential)
	var status *statusError
	switch {
	case err == nil:
		v.deliver(at)
		return nil
	case plugins.ClassOf(err) != plugins.Rejected:
		return err
	case len(texts) == 1 || !errors.As(err, &status) || !status.aboutContent():
		for _, i := range at {
			v.set(i, err)
		}
		return nil
	}
	half := len(texts) / 2
	if err := s.postBatch(ctx, v, texts[:half], at[:half]); err != nil {
		return err
	}
	return s.postBatch(ctx, v, texts[half:], at[half:])
}

// aboutContent reports whether an answer blames what was sent, rather than who sends it, or where
// to.
func (e *statusError) aboutContent() bool {
	return e.status == http.StatusBadRequest || e.status == http.StatusRequestEntityTooLarge || e.status == http.StatusUnprocessableEntity
}

// verdicts is what came of each event.
type verdicts struct {
	n    int
	errs []error // nil: no error yet
	done []bool  // delivered

	confidential bool // one of the events is about a Secret
}

func (v *verdicts) set(i int, err error) {
	if v.errs == nil {
		v.errs = make([]error, v.n)
	}
	v.errs[i] = err
}

func (v *verdicts) deliver(at []int) {
	if v.done == nil {
		v.done = make([]bool, v.n)
	}
	for _, i := range at {
		v.done[i] = true
	}
}

// setIfNone gives an event an error that was not delivered and has none.
func (v *verdicts) setIfNone(i int, err error) {
	if (v.done == nil || !v.done[i]) && (v.errs == nil || v.errs[i] == nil) {
		v.set(i, err)
	}
}
