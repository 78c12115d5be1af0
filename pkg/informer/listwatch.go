package informer

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	acceptObjects      = "application/json"
	acceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// listerWatcher is what the Reflector lists and watches through. Unlike client-go's it retries what may go away by itself, hears
// the context while it waits, and tells the Watch what happened. Errors that it returns are for the Reflector to act on.
type listerWatcher struct {
	w *Watch
	// gone is called when the API server does not know the resource (any more).
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

// IsWatchListSemanticsUnSupported tells the Reflector to list in pages if a size of pages is set.
func (lw *listerWatcher) IsWatchListSemanticsUnSupported() bool { return lw.w.factory.cfg.PageSize > 0 }

// ListWithContext implements cache.ListerWatcherWithContext. It gets one page.
func (lw *listerWatcher) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	w := lw.w
	w.running.RLock()
	defer w.running.RUnlock()
	if ctx.Err() != nil {
		return nil, ctx.Err() // the Reflector is gone, and another may be at work
	}
	if w.resumable.Load() {
		list, err := lw.resumeList(ctx)
		if err == nil || w.resumable.Load() {
			return list, err
		}
	}
	w.resumed.Store(false)
	if opts.Continue == "" {
		if err := lw.retry(ctx, func() error { return w.willList(ctx) }); err != nil {
			return nil, err
		}
	}
	if opts.ResourceVersion == "0" && w.Fed() != "" || w.latest.Load() {
		opts.ResourceVersion = "" // whatever some cache has may be older than what we have
	}
	var list runtime.Object
	err := lw.retry(ctx, func() error {
		accept := acceptObjects
		if w.spec.metadataOnly() {
			accept = acceptMetadataList
		}
		resp, err := w.factory.cfg.Client.get(ctx, w.path(), w.query(opts), accept, idleTimeout)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		l := newListing(&w.spec, w.resource.Load(), newStream(resp.Body, w.heard), w.leftOutOfList)
		l.known = w.known
		list, err = l.read()
		return err
	})
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (lw *listerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w := lw.w
	if opts.SendInitialEvents != nil {
		if w.resumable.Load() {
			r, err := lw.resume(ctx, opts.TimeoutSeconds)
			if err == nil {
				return r, nil
			}
			if w.resumable.Load() {
				return nil, err
			}
		}
		w.resumed.Store(false)
		if w.noInitialEvents.Load() {
			return nil, apierrors.NewMethodNotSupported(w.spec.Resource.GroupResource(), "watch with initial events")
		}
	}
	r, err := lw.dial(ctx, opts, false)
	if err != nil {
		return nil, err // not r: a nil *reader in an interface is not nil
	}
	return r, nil
}

// dial starts a watch. One that goes on from a state is preceded by probes. resumed: the Reflector takes it for one that does not.
func (lw *listerWatcher) dial(ctx context.Context, opts metav1.ListOptions, resumed bool) (r *reader, err error) {
	w := lw.w
	opts.Watch = true
	err = lw.retry(ctx, func() error {
		if opts.SendInitialEvents == nil {
			if err := w.mayGoOn(ctx, opts.ResourceVersion); err != nil && !cannotProbe(err) {
				return err
			}
		} else if err := w.willList(ctx); err != nil {
			return err
		} else if w.latest.Load() {
			opts.ResourceVersion = ""
		}
		accept := acceptObjects
		if w.spec.metadataOnly() {
			accept = acceptMetadata
		}
		// The API server ends the watch after the time that it is asked for. If it does not, it is gone.
		timeout := 24 * time.Hour
		if opts.TimeoutSeconds != nil {
			timeout = time.Duration(*opts.TimeoutSeconds+30) * time.Second
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		resp, err := w.factory.cfg.Client.get(ctx, w.path(), w.query(opts), accept, 0)
		if err != nil {
			cancel()
			return err
		}
		silence := w.factory.cfg.Silence
		if resp.ProtoMajor > 1 {
			silence *= 4
		}
		r = newReader(ctx, cancel, w, newBody(resp.Body, silence, func(error) { _ = resp.Body.Close() }), opts, resumed)
		return nil
	})
	return r, err
}

// retry calls try until it succeeds or fails for good.
func (lw *listerWatcher) retry(ctx context.Context, try func() error) error {
	w := lw.w
	pause := pause{Backoff: w.factory.cfg.Backoff}
	for {
		err := try()
		if err == nil {
			w.reached()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.noteError(err)
		switch {
		case isExpired(err), isAhead(err):
			return err
		case apierrors.IsNotFound(err):
			lw.gone()
			return err
		case isAnswer(err), errors.Is(err, errNoList):
			w.failing(err)
			return err
		}
		w.failing(err)
		if err := pause.wait(ctx, retryAfter(err)); err != nil {
			return err
		}
	}
}

func (w *Watch) path() string {
	namespace := w.spec.Namespace
	if !w.namespaced.Load() {
		namespace = ""
	}
	return resourcePath(w.spec.Resource, namespace)
}

// query returns the parameters of a list or watch request.
func (w *Watch) query(opts metav1.ListOptions) url.Values {
	q := url.Values{}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	set("labelSelector", w.spec.LabelSelector)
	set("fieldSelector", w.spec.FieldSelector)
	set("resourceVersion", opts.ResourceVersion)
	set("resourceVersionMatch", string(opts.ResourceVersionMatch))
	set("continue", opts.Continue)
	if opts.Limit > 0 {
		set("limit", strconv.FormatInt(opts.Limit, 10))
	}
	if opts.TimeoutSeconds != nil {
		set("timeoutSeconds", strconv.FormatInt(*opts.TimeoutSeconds, 10))
	}
	if opts.Watch {
		set("watch", "true")
	}
	if opts.AllowWatchBookmarks {
		set("allowWatchBookmarks", "true")
	}
	if opts.SendInitialEvents != nil {
		set("sendInitialEvents", strconv.FormatBool(*opts.SendInitialEvents))
	}
	return q
}
