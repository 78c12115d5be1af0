package reflector

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// listerWatcher is the ListerWatcher of client-go's Reflector. Unlike client-go's own it retries
// temporary failures itself, stops waiting when the context ends, and records the results in the
// Health. It returns only errors that the Reflector has to handle.
type listerWatcher struct {
	cfg    *Config
	prober *prober
	quirks *quirks
	// held for reading by calls that may outlast the Reflector
	running *sync.RWMutex
	// gone is called when the API server does not have the resource (any more).
	gone func()
}

// List implements cache.ListerWatcher. The Reflector uses ListWithContext.
func (lw *listerWatcher) List(metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.ErrUnsupported
}

// Watch implements cache.ListerWatcher. The Reflector uses WatchWithContext.
func (lw *listerWatcher) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.ErrUnsupported
}

// IsWatchListSemanticsUnSupported makes the Reflector list in pages if a page size is set.
func (lw *listerWatcher) IsWatchListSemanticsUnSupported() bool { return lw.cfg.PageSize > 0 }

// ListWithContext implements cache.ListerWatcherWithContext. It requests one page.
func (lw *listerWatcher) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	lw.running.RLock()
	defer lw.running.RUnlock()
	if ctx.Err() != nil {
		return nil, ctx.Err() // the Reflector has ended, and another may be running
	}
	if lw.cfg.Plan.Resumable() {
		list, err := lw.resumeList(ctx)
		if err == nil || lw.cfg.Plan.Resumable() {
			return list, err
		}
	}
	lw.cfg.Plan.Listing()
	if opts.Continue == "" {
		lw.cfg.Target.reach(lw.cfg.Target.format.Load())
		lw.cfg.Late.begin()
		lw.quirks.listNext.Store(false)
		if err := lw.retry(ctx, stepList, func() error { return lw.prober.willList(ctx) }); err != nil {
			return nil, err
		}
	}
	if lw.tooOld(opts.ResourceVersion) || lw.cfg.Plan.Latest() {
		opts.ResourceVersion = "" // an answer from a cache may be older than our state
	}
	if opts.Limit > 0 || opts.Continue != "" {
		list, err := lw.page(ctx, opts)
		if err != nil {
			return nil, err // not list: a nil *List in an interface is not nil
		}
		if list.Continue == "" {
			lw.cfg.Health.healthy(stepList)
		}
		return list, nil
	}
	// The Reflector takes this list for complete, but some servers send pages without being asked.
	list, err := client.Pages(func(token string) (*internalversion.List, error) {
		opts := opts
		if opts.Continue = token; token != "" {
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
		}
		return lw.page(ctx, opts)
	})
	if errors.Is(err, client.ErrIncomplete) {
		lw.cfg.Health.failing(stepList, err)
	}
	if err != nil {
		return nil, err
	}
	lw.cfg.Health.healthy(stepList)
	return list, nil
}

// tooOld reports whether an answer of a list from a version may be older than the state. The
// Reflector may have an older version than the state, see Position.From.
func (lw *listerWatcher) tooOld(version string) bool {
	applied := lw.cfg.State.Position.Applied()
	return version == "0" && applied != "" || persist.Lower(version, applied)
}

// page requests a page of a list; the server may send the whole list.
func (lw *listerWatcher) page(ctx context.Context, opts metav1.ListOptions) (list *internalversion.List, err error) {
	err = lw.retry(ctx, stepList, func() (err error) {
		list, err = lw.cfg.readPage(ctx, lw.cfg.Target.Path(), opts, lw.quirks)
		if errors.Is(err, client.ErrSlow) {
			lw.quirks.slowed()
			if opts.Continue == "" && lw.cfg.PageSize == 0 {
				err = &slowError{err}
			}
		}
		return err
	})
	if client.IsExpired(err) && opts.ResourceVersion == "" && opts.Continue == "" {
		lw.cfg.Health.failing(stepList, err) // the Reflector has no other list to ask for
	}
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (lw *listerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		if lw.cfg.Plan.Resumable() {
			r, err := lw.resume(ctx, opts.TimeoutSeconds)
			if err == nil {
				return r, nil
			}
			if lw.cfg.Plan.Resumable() {
				return nil, err
			}
		}
		lw.cfg.Plan.Listing()
		lw.cfg.Late.begin()
		if lw.quirks.noInitialEvents.Load() || lw.quirks.listNext.Swap(false) {
			return nil, lw.noInitialEvents()
		}
		if lw.quirks.unfinished.Load() >= maxUnfinished {
			lw.quirks.unfinished.Store(0)
			return nil, lw.noInitialEvents()
		}
		if err := lw.quirks.calm(ctx, lw.cfg.Backoff); err != nil {
			return nil, err
		}
		if opts.ResourceVersion != "" && lw.tooOld(opts.ResourceVersion) {
			opts.ResourceVersion = lw.cfg.State.Position.Applied()
		}
	} else if from := lw.cfg.State.Position.From(); from != "" && from != persist.NeverExisted {
		// The Reflector has the version of the last event, and others of that version may be missing.
		opts.ResourceVersion = from
	}
	r, err := lw.dial(ctx, opts, false)
	if client.IsExpired(err) && opts.SendInitialEvents != nil && opts.ResourceVersion == "" {
		lw.cfg.Log.Warn("the API server rejects a stream of initial events as expired although it begins now; listing instead", "watch", lw.cfg.Name, "err", err)
		return nil, lw.noInitialEvents()
	}
	if errors.Is(err, errNoStream) {
		return nil, lw.noInitialEvents()
	}
	if err != nil {
		return nil, err // not r: a nil *reader in an interface is not nil
	}
	return r, nil
}

// errNoStream is the answer of an API server before Kubernetes 1.32 to a request for a stream of
// initial events. It is no failure: the Reflector lists instead.
var errNoStream = errors.New("the API server has no streams of initial events")

// slowError is an ErrSlow of a list, after which the Reflector tries a stream of initial events
// again.
type slowError struct{ error }

func (e *slowError) Unwrap() error { return e.error }

// noInitialEvents returns the error that makes the Reflector list. After other errors it would
// repeat the request, after some of them at once.
func (lw *listerWatcher) noInitialEvents() error {
	return apierrors.NewMethodNotSupported(lw.cfg.Target.GVR.GroupResource(), "watch with initial events")
}

// dial starts a watch. resumed: the Reflector takes the
// watch for one with initial events.
func (lw *listerWatcher) dial(ctx context.Context, opts metav1.ListOptions, resumed bool) (r *reader, err error) {
	opts.Watch = true
	of := stepOpen
	if opts.SendInitialEvents != nil {
		of = stepList
	}
	err = lw.retry(ctx, of, func() error {
		if opts.SendInitialEvents == nil {
			if err := lw.prober.mayResume(ctx); err != nil && !cannotProbe(err) {
				return err
			}
		} else if err := lw.prober.willList(ctx); err != nil {
			return err
		} else if lw.cfg.Plan.Latest() { // the most recent state, and not that of a server's cache
			opts.ResourceVersion = ""
		}
		format, accept := lw.cfg.Target.format.Load(), client.AcceptObjects
		if format.MetadataOnly {
			accept = client.AcceptMetadata
		}
		// The API server ends the watch after the requested time. If it does not, the connection is
		// dead.
		timeout := 24 * time.Hour
		if opts.TimeoutSeconds != nil {
			timeout = time.Duration(*opts.TimeoutSeconds+30) * time.Second
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		resp, err := lw.cfg.Client.GetWithin(ctx, lw.cfg.Target.Path(), lw.cfg.Target.Query(opts), accept, lw.quirks.wait(lw.cfg.HeaderTimeout), 0)
		if err != nil {
			cancel()
			if opts.SendInitialEvents != nil && errors.Is(err, client.ErrSlow) {
				lw.quirks.slowed()
			}
			if opts.SendInitialEvents != nil && apierrors.IsInvalid(err) {
				return errNoStream
			}
			return err
		}
		// HTTP/2 has pings, which detect a dead connection earlier.
		silence := lw.cfg.Silence
		if resp.ProtoMajor > 1 {
			silence *= 4
		}
		body := client.NewBody(resp.Body, silence, func(error) { _ = resp.Body.Close() })
		lw.cfg.Health.healthy(stepOpen, stepProbe)
		r = lw.read(&stream{ctx: ctx, cancel: cancel, body: body, opts: opts, resumed: resumed, format: format})
		return nil
	})
	return r, err
}

// read starts to read a stream.
func (lw *listerWatcher) read(s *stream) *reader {
	r := newReader(lw.cfg, lw.prober, s)
	lw.running.RLock()
	r.start(lw.prober.opened(r.Stop), lw.running.RUnlock)
	return r
}

// leftOut reports an item of a list that could not be read, and returns its placeholder; nil: too
// little is known of the item.
func (c *Config) leftOut(e *wire.ObjectError) runtime.Object {
	resource := c.Target.Resource()
	if o := e.Reduced(c.Target.Format(), resource); o != nil {
		c.Sink.Reduced(e)
		return c.Sink.Known(o)
	}
	c.Sink.LeftOut(e)
	o := e.Placeholder(resource)
	if o == nil {
		c.Plan.SetUnnamed()
	}
	return o
}

// readPage requests a page of a list; the server may send the whole list.
func (c *Config) readPage(ctx context.Context, path string, opts metav1.ListOptions, q *quirks) (*internalversion.List, error) {
	format, accept := c.Target.Format(), client.AcceptObjects
	if format.MetadataOnly {
		accept = client.AcceptMetadataList
	}
	resp, err := c.Client.GetWithin(ctx, path, c.Target.Query(opts), accept, q.wait(c.HeaderTimeout), q.wait(client.IdleTimeout))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	l := wire.NewListing(format, c.Target.Resource(), wire.NewStream(resp.Body, c.Health.Heard), c.leftOut)
	l.Known = c.Sink.Known
	return l.Read()
}

// retry calls try, a part of a step, until it succeeds or fails for good.
func (lw *listerWatcher) retry(ctx context.Context, of step, try func() error) error {
	pause := backoff.Series{Policy: lw.cfg.Backoff}
	for {
		err := try()
		if err == nil || errors.Is(err, errNoStream) {
			lw.cfg.Health.Heard()
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		lw.cfg.Health.noteError(err)
		if client.IsExpired(err) || client.IsAhead(err) {
			lw.cfg.Health.expected(err) // a list, or another one, follows
			return err
		}
		lw.cfg.Health.failing(of, err)
		if apierrors.IsNotFound(err) { // discovery decides whether the resource still exists
			lw.gone()
			return err
		}
		if client.IsAnswer(err) || errors.Is(err, wire.ErrNoList) || errors.As(err, new(*slowError)) {
			return err
		}
		pause.Max = client.MaxPause(lw.cfg.Backoff.Max, err)
		if err := pause.Wait(ctx, client.RetryAfter(err)); err != nil {
			return err
		}
	}
}

// resume starts the watch at the position of the state, and presents it to the Reflector as a
// stream without initial events. After a temporary failure the plan stays.
func (lw *listerWatcher) resume(ctx context.Context, timeout *int64) (*reader, error) {
	opts := metav1.ListOptions{ResourceVersion: lw.cfg.State.Position.From(), AllowWatchBookmarks: true, TimeoutSeconds: timeout}
	r, err := lw.dial(ctx, opts, true)
	lw.resumed(ctx, err)
	return r, err
}

// resumeList is resume for a Reflector that lists: it returns an empty list with the
// resourceVersion of the state.
func (lw *listerWatcher) resumeList(ctx context.Context) (runtime.Object, error) {
	from := lw.cfg.State.Position.From()
	err := lw.retry(ctx, stepOpen, func() error {
		err := lw.prober.mayResume(ctx)
		if isSlowProbe(err) {
			return nil
		}
		return err
	})
	lw.resumed(ctx, err)
	list := &internalversion.List{Items: []runtime.Object{}}
	list.ResourceVersion = from
	return list, err
}

// resumed handles the result of an attempt to resume.
func (lw *listerWatcher) resumed(ctx context.Context, err error) {
	if err == nil {
		lw.cfg.Plan.Resumed()
		lw.cfg.Health.healthy(stepList)
	} else if ctx.Err() == nil && !apierrors.IsNotFound(err) {
		lw.cfg.Plan.MustList()
	}
}
