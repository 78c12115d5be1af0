package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// eventBuffer is the number of events that are decoded ahead of the Reflector, so that the two
// goroutines seldom wait for each other.
const eventBuffer = 64

const (
	// maxUnfinished is the number of unfinished streams of initial events after which a list follows.
	maxUnfinished = 2
	// maxInitial bounds a stream of initial events, in multiples of the longest silence in it.
	maxInitial = 10
)

var errUnfinished = errors.New("the stream of initial events ended before the mark of their end: does a proxy before the API server cut it?")

// shortWatch is the minimum duration of a watch.
const shortWatch = time.Second

// quirks are the detected limitations of the API server. They are safe for concurrent use.
type quirks struct {
	noInitialEvents atomic.Bool // it cannot stream initial events
	listNext        atomic.Bool // the next objects come by a list and not by such a stream
	// slow counts the times that an answer with all objects took too long. Each doubles the waits.
	slow atomic.Int32
	// unfinished counts the last streams of initial events that ended without the mark of their end.
	unfinished atomic.Int32
	// failures counts all such streams since one was complete.
	failures atomic.Int32
}

// calm waits before a stream of initial events, longer with each one that failed. It returns the
// error of ctx.
func (q *quirks) calm(ctx context.Context, policy backoff.Policy) error {
	n := q.failures.Load()
	if n == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(policy.Delay(int(n)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failedInitial records a stream of initial events that ended without the mark of their end.
func (q *quirks) failedInitial() {
	q.unfinished.Add(1)
	q.failures.Add(1)
}

// maxSlow bounds the doublings of the waits: half an hour for the header of an answer.
const maxSlow = 5

// wait returns how long to wait, by default d.
func (q *quirks) wait(d time.Duration) time.Duration { return d << min(q.slow.Load(), maxSlow) }

// slowed records an answer with all objects that took too long. A stream of initial events may be
// possible nevertheless: it was given up because of a silence, too.
func (q *quirks) slowed() {
	q.slow.Add(1)
	q.noInitialEvents.Store(false)
}

// reader decodes a watch response in a goroutine of its own. It implements watch.Interface.
type reader struct {
	cfg    *Config
	quirks *quirks
	prober *prober
	body   io.Closer
	events *wire.Frames
	out    chan watch.Event
	cancel context.CancelFunc
	done   <-chan struct{}
	over   func() // called when the stream has ended
	// initial: the stream starts with the existing objects, and a bookmark ends them. lag fires if
	// neither arrives.
	initial bool
	lag     lag
	limit   *time.Timer // of all initial events; nil: there are none
	changed bool        // a change came before the mark of the end of the initial events
	began   time.Time
	version string // the resourceVersion that the Reflector has, until the first event
	sent    bool   // an event was sent
	proved  bool   // an event or a bookmark came that is no error, nor an initial event
	told    bool   // the API server has said why it ends the stream
}

// stream has the parts of a response that a reader takes over.
type stream struct {
	ctx    context.Context //nolint:containedctx // of the request
	cancel context.CancelFunc
	body   io.ReadCloser
	opts   metav1.ListOptions
	// resumed: there are no initial events.
	resumed bool
	format  *format
}

// newReader returns a reader of a stream, and takes ownership of the stream.
func newReader(cfg *Config, p *prober, s *stream) *reader {
	r := &reader{
		cfg: cfg, quirks: p.quirks, prober: p, body: s.body, out: make(chan watch.Event, eventBuffer), cancel: s.cancel, done: s.ctx.Done(),
		began: time.Now(), version: s.opts.ResourceVersion,
		initial: s.opts.SendInitialEvents != nil && *s.opts.SendInitialEvents,
	}
	cfg.Target.reach(s.format)
	r.events = wire.NewFrames(s.format.Format, cfg.Target.Resource(), wire.NewStream(s.body, r.heard))
	if r.initial {
		wait := p.quirks.wait(cfg.BookmarkWait)
		r.lag.begin(wait, r.refuse)
		r.limit = time.AfterFunc(maxInitial*wait, r.overdue)
		r.events.Ahead()
	}
	if s.resumed {
		r.out <- initialEventsEnd(s.opts.ResourceVersion)
	}
	context.AfterFunc(s.ctx, func() { _ = s.body.Close() })
	return r
}

// start reads until the stream ends, and then calls over, and closed when the Reflector has
// everything.
func (r *reader) start(over, closed func()) {
	r.over = over
	go func() {
		defer closed()
		r.run()
	}()
}

// Stop implements watch.Interface.
func (r *reader) Stop() { r.cancel() }

// ResultChan implements watch.Interface.
func (r *reader) ResultChan() <-chan watch.Event { return r.out }

func (r *reader) heard() {
	r.cfg.Health.Heard()
	r.lag.again()
}

// lag calls a function once a stream has been silent for a time. It is safe for concurrent use.
type lag struct {
	mu    sync.Mutex
	timer *time.Timer // nil: ended
	wait  time.Duration
}

func (l *lag) begin(wait time.Duration, then func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer, l.wait = time.AfterFunc(wait, then), wait
}

// again begins the time anew, until end.
func (l *lag) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Reset(l.wait)
	}
}

func (l *lag) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// refuse ends a stream whose initial events have no end: an API server that is too old for the
// request ignores it.
func (r *reader) refuse() {
	r.quirks.noInitialEvents.Store(true)
	_ = r.body.Close()
}

// overdue ends a stream whose initial events have no end although the stream is not silent.
func (r *reader) overdue() {
	r.quirks.unfinished.Store(maxUnfinished)
	_ = r.body.Close()
}

func (r *reader) run() {
	defer r.over()
	if r.limit != nil {
		defer r.limit.Stop()
	}
	defer r.events.Close()
	defer r.cancel()
	defer close(r.out)
	for {
		e, err := r.events.Next()
		// An object that cannot be read is no reason to end the stream.
		if err != nil {
			if e, err = r.replace(e, err); wire.IsObjectError(err) {
				continue
			}
		}
		if err != nil {
			r.over()
			r.ended(err)
			r.linger()
			return
		}
		known := ""
		if r.initial {
			known = r.begin(&e)
			r.expectEnd(e.Type)
		}
		if e.Type == watch.Error {
			r.failed(apierrors.FromObject(e.Object))
		} else {
			r.prove()
		}
		if !r.send(e) {
			return
		}
		// The Reflector has the version from here on, not before.
		r.version, r.sent = known, true
	}
}

// prove records an event or a bookmark.
func (r *reader) prove() {
	r.cfg.Health.Prove()
	if !r.initial && !r.proved {
		r.proved = true
		r.prober.proof.came()
		r.cfg.Health.healthy(stepStream)
	}
}

// failed records why the API server ends the stream. If the requested version was too old, the
// Reflector immediately requests a stream that begins now; if it requested no version, another
// request does not help.
func (r *reader) failed(err error) {
	r.told = true
	r.cfg.Health.noteError(err)
	if client.IsExpired(err) {
		r.cfg.Health.expected(err)
	} else if r.initial {
		r.quirks.failedInitial()
		r.cfg.Health.failing(stepList, err)
	} else {
		r.cfg.Health.failing(stepStream, err)
		if !r.proved {
			r.prober.barren(r.version, r.began, true)
		}
	}
	if r.initial && r.version == "" && client.IsExpired(err) {
		r.cfg.Log.Warn("the API server rejects a stream of initial events as expired although it begins now; listing instead", "watch", r.cfg.Name, "err", err)
		r.quirks.listNext.Store(true)
	}
}

// begin handles an initial event. It returns the resourceVersion of the bookmark that ends the
// initial events.
func (r *reader) begin(e *watch.Event) (version string) {
	switch o := e.Object.(type) {
	case *event.Object:
		e.Object = r.cfg.Sink.Known(o)
	case *metav1.PartialObjectMetadata:
		if o.Annotations != nil {
			r.initial = false
			r.quirks.unfinished.Store(0)
			r.quirks.failures.Store(0)
			r.lag.end()
			r.limit.Stop()
			r.events.Calm()
			r.cfg.Health.healthy(stepList)
			return o.ResourceVersion
		}
	}
	return ""
}

// expectEnd shortens the limit at the first change: the API server sends it after all objects, so
// the mark of their end is due, and a busy resource is never silent.
func (r *reader) expectEnd(of watch.EventType) {
	if r.initial && !r.changed && (of == watch.Modified || of == watch.Deleted) {
		r.changed = true
		r.limit.Reset(r.quirks.wait(r.cfg.BookmarkWait))
	}
}

// replace drops an object that could not be read, or replaces it by a placeholder if its identity
// is known. It returns any other error.
func (r *reader) replace(e watch.Event, err error) (watch.Event, error) {
	var bad *wire.ObjectError
	if !errors.As(err, &bad) {
		return e, err
	}
	if e.Type == watch.Added || e.Type == watch.Modified {
		if o := bad.Reduced(r.cfg.Target.Format(), r.cfg.Target.Resource()); o != nil {
			r.cfg.Sink.Reduced(bad)
			e.Object = o
			return e, nil
		}
	}
	r.cfg.Sink.LeftOut(bad)
	e.Object = bad.Placeholder(r.cfg.Target.Resource())
	if e.Object == nil && e.Type != watch.Deleted {
		r.cfg.Plan.SetUnnamed()
	}
	if e.Object == nil || e.Type == "" {
		return e, bad
	}
	return e, nil
}

// linger ends a stream without events. The Reflector would take it for a watch that does not work
// and list again, so it receives a bookmark with its own version. linger waits a moment before the
// end, so that the Reflector does not reconnect in a tight loop.
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

// ended records why the stream ended, and reports it to the Reflector if the Reflector has to act.
func (r *reader) ended(err error) {
	select {
	case <-r.done:
		return
	default:
	}
	r.lag.end()
	if r.initial && r.quirks.noInitialEvents.Load() {
		silent := fmt.Errorf("no initial event for %v: the objects are listed instead", r.lag.wait)
		r.cfg.Health.expected(silent)
		r.cfg.Log.Warn("a stream of initial events is silent", "watch", r.cfg.Name, "err", silent)
		r.send(watch.Event{Type: watch.Error, Object: &metav1.Status{
			Status: metav1.StatusFailure, Code: 405, Reason: metav1.StatusReasonMethodNotAllowed, Message: "no initial events",
		}})
		return
	}
	foreign := errors.Is(err, wire.ErrNotJSON) || errors.Is(err, wire.ErrNotWatch)
	if !r.told && r.initial {
		r.quirks.failedInitial()
		if foreign {
			r.cfg.Health.failing(stepList, err)
		} else {
			r.cfg.Health.failing(stepList, errUnfinished)
		}
	} else if !r.told {
		if foreign {
			r.cfg.Health.failing(stepStream, err)
		}
		if !r.proved && !errors.Is(err, client.ErrSlow) {
			r.prober.barren(r.version, r.began, foreign)
		}
	}
	r.cfg.Health.noteError(err)
	if errors.Is(err, client.ErrSlow) {
		// the idle connections may be dead too
		r.cfg.Client.Close()
		r.cfg.Log.Debug("watch was silent", "watch", r.cfg.Name)
	} else { // the API server ends watches every few minutes, and connections break
		r.cfg.Log.Debug("watch ended", "watch", r.cfg.Name, "err", err)
	}
}
