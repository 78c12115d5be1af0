package kubestatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/crds"
	"github.com/deltarouter/deltarouter/internal/kubehttp"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	// statusInterval is the interval at which the states of the routes are compared with their
	// status.
	statusInterval = time.Second
	// statusRate bounds the writes per second, and statusBurst those at once: 500 changed routes
	// take ten seconds.
	statusRate  = 50
	statusBurst = 100
	// countsPause is the pause between two writes of the status of an object only for its counts,
	// which change with each delta.
	countsPause = time.Minute
	// refusedPause is the pause after a refused write of one object.
	refusedPause = 10 * time.Second
)

// errGone: the object was deleted, or replaced by another one of the same name.
var errGone = errors.New("the object is gone")

// Writer writes the status of the objects. It writes only differences, so its own writes, which
// change the objects, cause no further ones.
type Writer struct {
	api     *plugins.API
	log     *slog.Logger
	now     func() time.Time
	limit   *rate.Limiter
	retry   backoff.Series
	woken   chan struct{}
	written map[Key]write // the last write of each object
	refused map[Key]refusal
	failure string // the last one that was logged
}

// refusal is an answer of the API server that is about one object, for instance because it has no
// room for its status. It counts until the object changes, or until a time.
type refusal struct {
	uid        string
	generation int64
	until      time.Time
}

// refusedError is the error of a refused write. The writes of other objects go on.
type refusedError struct{ error }

// write is a status that the router wrote. It counts until the object has another uid.
type write struct {
	uid    string
	status Status
	at     time.Time
}

// NewWriter returns a Writer.
func NewWriter(api *plugins.API, log *slog.Logger, now func() time.Time) *Writer {
	return &Writer{
		api: api, log: log, now: now, limit: rate.NewLimiter(statusRate, statusBurst), woken: make(chan struct{}, 1),
		written: make(map[Key]write), refused: make(map[Key]refusal),
		retry: backoff.Series{Policy: backoff.Policy{Min: time.Second, Max: 30 * time.Second}},
	}
}

// Run writes the status of the objects until ctx is done. states returns the objects with their
// states; an object without a state is left alone.
func (w *Writer) Run(ctx context.Context, states func() map[*Object]State) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.woken:
		}
		err := w.pass(ctx, states())
		if _, refused := errors.AsType[refusedError](err); err == nil || refused {
			w.failure = ""
			w.retry.Reset()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != w.failure {
			w.failure = text
			w.log.Warn("the status of a route is not written; it is tried again", "err", err)
		}
		if w.retry.Wait(ctx, 0) != nil {
			return
		}
	}
}

// Wake makes Run compare the states now.
func (w *Writer) Wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it will
	}
}

// pass writes the status of each object that differs. It ends at the first error, unless the error
// is a refusal: the author of one object must not keep the status of others from being written.
func (w *Writer) pass(ctx context.Context, states map[*Object]State) error {
	present := make(map[Key]bool, len(states))
	for o := range states {
		present[o.Key] = true
	}
	for key := range w.written {
		if !present[key] {
			delete(w.written, key)
		}
	}
	maps.DeleteFunc(w.refused, func(key Key, _ refusal) bool { return !present[key] })
	var refused error
	for o, state := range states {
		former := o.Status
		last, ok := w.written[o.Key]
		if ok = ok && last.uid == o.UID; ok {
			former = last.status
		}
		status, changed := statusOf(&state, &former, metav1.NewTime(w.now().Truncate(time.Second)))
		if state.Deltas != nil && !state.Deltas.is(former.Deltas) {
			changed = changed || !ok || w.now().Sub(last.at) >= countsPause
		}
		if !changed || w.waits(o, state.Generation) {
			continue
		}
		if err := w.limit.Wait(ctx); err != nil {
			return err
		}
		err := w.write(ctx, o, status)
		if errors.Is(err, errGone) {
			continue // the watch reports it
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", o.Key, err)
			if _, ok := errors.AsType[refusedError](err); !ok {
				return err
			}
			refused = cmp.Or(refused, err)
			w.refuse(o, state.Generation, err)
			continue
		}
		delete(w.refused, o.Key)
		w.written[o.Key] = write{o.UID, status, w.now()}
	}
	return refused
}

// waits reports whether a write of the object was refused a moment ago.
func (w *Writer) waits(o *Object, generation int64) bool {
	r, ok := w.refused[o.Key]
	return ok && r.uid == o.UID && r.generation == generation && w.now().Before(r.until)
}

// refuse records that a write of the object was refused, and logs the first time.
func (w *Writer) refuse(o *Object, generation int64, err error) {
	if r, ok := w.refused[o.Key]; !ok || r.uid != o.UID || r.generation != generation {
		w.log.Warn("the status of a route is not written; it is tried again", "err", err)
	}
	w.refused[o.Key] = refusal{o.UID, generation, w.now().Add(refusedPause)}
}

// write writes a status as a merge patch. The uid is a precondition: another object of the same
// name does not get it.
func (w *Writer) write(ctx context.Context, o *Object, status Status) error {
	parts := []string{"apis", group, crds.Version, o.Kind.plural(), o.Name, "status"}
	if o.Namespace != "" {
		parts = []string{"apis", group, crds.Version, "namespaces", o.Namespace, o.Kind.plural(), o.Name, "status"}
	}
	place, err := url.JoinPath(w.api.URL, parts...)
	if err != nil {
		return err
	}
	body := map[string]any{"metadata": map[string]any{"uid": o.UID}, "status": status}
	code, err := kubehttp.Send(ctx, w.api.Client, http.MethodPatch, place+"?fieldManager=deltarouter", body)
	if err != nil {
		return err
	}
	switch code {
	case http.StatusOK:
		return nil
	case http.StatusNotFound, http.StatusConflict:
		return errGone
	case http.StatusForbidden:
		return fmt.Errorf("the API server forbids it: grant the verb patch on %s/status", o.Kind.plural())
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("the API server answers %d %s", code, http.StatusText(code))
	}
	return refusedError{fmt.Errorf("the API server answers %d %s", code, http.StatusText(code))}
}
