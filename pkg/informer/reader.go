package informer

import (
	"context"
	"errors"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// eventBuffer is how many events are decoded ahead of the Reflector, so that the two goroutines seldom wait for each other.
const eventBuffer = 64

// shortWatch is how long a watch lasts at least.
const shortWatch = time.Second

// reader decodes a watch response in a goroutine of its own. It implements watch.Interface.
type reader struct {
	w      *Watch
	body   io.Closer
	events *frames
	out    chan watch.Event
	cancel context.CancelFunc
	done   <-chan struct{}
	// initial: the stream begins with what there is and a bookmark ends that. lagging fires when neither comes.
	initial bool
	lagging *time.Timer
	began   time.Time
	version string // the resourceVersion that the Reflector knows, as long as nothing came after it
	sent    bool   // anything
}

// newReader takes over the body and the context and starts reading. resumed: the initial events are over before they begin.
func newReader(ctx context.Context, cancel context.CancelFunc, w *Watch, body io.ReadCloser, opts metav1.ListOptions, resumed bool) *reader {
	r := &reader{
		w: w, began: time.Now(), version: opts.ResourceVersion, body: body, out: make(chan watch.Event, eventBuffer), cancel: cancel, done: ctx.Done(),
		initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
	}
	r.events = newFrames(&w.spec, w.resource.Load(), newStream(body, r.heard))
	if r.initial {
		r.lagging = time.AfterFunc(w.factory.cfg.BookmarkWait, r.refuse)
	}
	if resumed {
		r.out <- initialEventsEnd(opts.ResourceVersion)
	}
	context.AfterFunc(ctx, func() { _ = body.Close() })
	w.running.RLock()
	w.stream.Store(r)
	go r.run()
	return r
}

// Stop implements watch.Interface.
func (r *reader) Stop() { r.cancel() }

// ResultChan implements watch.Interface.
func (r *reader) ResultChan() <-chan watch.Event { return r.out }

func (r *reader) heard() {
	r.w.heard()
	if r.lagging != nil {
		r.lagging.Reset(r.w.factory.cfg.BookmarkWait)
	}
}

// refuse ends a stream that does not say where its initial events end: a server too old to know the request ignores it.
func (r *reader) refuse() {
	r.w.noInitialEvents.Store(true)
	_ = r.body.Close()
}

func (r *reader) run() {
	defer r.w.running.RUnlock()
	defer r.w.stream.CompareAndSwap(r, nil)
	defer r.cancel()
	defer close(r.out)
	for {
		e, err := r.events.next()
		if err != nil {
			if e, err = r.replace(e, err); isObjectError(err) {
				continue
			}
		}
		if err != nil {
			r.ended(err)
			r.linger()
			return
		}
		known := ""
		if r.initial {
			known = r.begin(&e)
		}
		if e.Type == watch.Error {
			r.w.noteError(statusOf(e.Object))
		}
		if !r.send(e) {
			return
		}
		r.version, r.sent = known, true
	}
}

// begin looks at an initial event. If it is the bookmark that ends them, it returns the resourceVersion of that.
func (r *reader) begin(e *watch.Event) (version string) {
	switch o := e.Object.(type) {
	case *event.Object:
		e.Object = r.w.known(o)
	case *metav1.PartialObjectMetadata:
		if o.Annotations != nil {
			r.initial = false
			r.lagging.Stop()
			r.lagging = nil
			return o.ResourceVersion
		}
	}
	return ""
}

// replace leaves out an object that could not be read, or puts a placeholder in its place if it is known which one it is. Any other
// error it returns.
func (r *reader) replace(e watch.Event, err error) (watch.Event, error) {
	var bad *objectError
	if !errors.As(err, &bad) {
		return e, err
	}
	r.w.leftOut(bad)
	e.Object = bad.placeholder(r.w.resource.Load())
	switch {
	case e.Object == nil && e.Type != watch.Deleted:
		r.w.unnamed.Store(true)
		return e, bad
	case e.Object == nil || e.Type == "":
		return e, bad
	}
	return e, nil
}

// linger ends a stream in which nothing came. The Reflector would take it for a watch that does not work and list again, so it gets a
// bookmark of what it knows already. So that it does not ask again and again, it waits for the end a moment.
func (r *reader) linger() {
	idle := r.version != "" && r.version != "0"
	if r.initial && !r.sent || !r.initial && !idle {
		return
	}
	t := time.NewTimer(time.Until(r.began.Add(shortWatch)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.done:
	}
	if r.initial {
		return
	}
	known := &metav1.PartialObjectMetadata{}
	known.ResourceVersion = r.version
	r.send(watch.Event{Type: watch.Bookmark, Object: known})
}

func initialEventsEnd(version string) watch.Event {
	end := &metav1.PartialObjectMetadata{}
	end.ResourceVersion = version
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return watch.Event{Type: watch.Bookmark, Object: end}
}

func (r *reader) send(e watch.Event) bool {
	select {
	case r.out <- e:
		return true
	default:
	}
	select {
	case r.out <- e:
		return true
	case <-r.done:
		return false
	}
}

// ended says why the stream ended, to the Reflector as far as that matters to it.
func (r *reader) ended(err error) {
	select {
	case <-r.done:
		return
	default:
	}
	if r.lagging != nil {
		r.lagging.Stop()
	}
	if r.initial && r.w.noInitialEvents.Load() {
		r.w.log.Warn("the API server does not stream initial events, listing instead", "watch", r.w.name)
		r.send(watch.Event{Type: watch.Error, Object: &metav1.Status{
			Status: metav1.StatusFailure, Code: 405, Reason: metav1.StatusReasonMethodNotAllowed, Message: "no initial events",
		}})
		return
	}
	r.w.noteError(err)
	switch {
	case errors.Is(err, errSlow):
		r.w.factory.cfg.Client.Close() // the connections that wait to be used again may be as dead as this one
		r.w.log.Debug("watch was silent", "watch", r.w.name)
	case errors.Is(err, errNotJSON), errors.Is(err, errNotWatch):
		r.w.log.Error("watch ended", "watch", r.w.name, "err", err)
	default: // the API server ends watches every few minutes, and connections break
		r.w.log.Debug("watch ended", "watch", r.w.name, "err", err)
	}
}
