package webhook

import (
	"context"
	"errors"
	"net/http"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// writeBatches posts the events in order, with as few requests as maxBatch allows. After the
// receiver is unavailable, it does not send the rest.
func (s *sink) writeBatches(ctx context.Context, events []event.Event) []error {
	v := verdicts{n: len(events)}
	for i := range events {
		v.confidential = v.confidential || httpsink.IsConfidential(&events[i])
	}
	// the valid CloudEvents and their indexes
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

// postBatch posts events as one request. If the receiver rejects its content, it does not say which
// event is faulty. Then postBatch posts each half alone, until each rejected event is alone. An
// error means that the receiver is unavailable: the events without a verdict will be retried, and
// the others have been delivered or rejected.
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

// aboutContent reports whether a status concerns the content of a request, and not its sender or
// its URL.
func (e *statusError) aboutContent() bool {
	return e.status == http.StatusBadRequest || e.status == http.StatusRequestEntityTooLarge || e.status == http.StatusUnprocessableEntity
}

// verdicts are the results of the events.
type verdicts struct {
	n    int
	errs []error // nil: no error yet
	done []bool  // delivered

	confidential bool // an event concerns a Secret
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

// setIfNone sets the error of an event that was not delivered and has no error yet.
func (v *verdicts) setIfNone(i int, err error) {
	if (v.done == nil || !v.done[i]) && (v.errs == nil || v.errs[i] == nil) {
		v.set(i, err)
	}
}
