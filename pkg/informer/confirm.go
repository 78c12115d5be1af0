package informer

import (
	"context"
	"errors"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// manyMissing is from how many objects on a list of all is cheaper than asking for each.
const manyMissing = 16

// identity is one incarnation of one object.
type identity struct {
	key event.Key
	uid string
}

// isGone asks the API server whether an object that left the watch is gone from the cluster too. It asks until it gets an answer
// or ctx is done. Where it must not ask, the object is not taken for deleted.
func (w *Watch) isGone(ctx context.Context, o *event.Object) (gone bool, err error) {
	err = w.ask(ctx, func() error {
		there, err := w.exists(ctx, o)
		gone = err == nil && !there
		return err
	})
	return gone, err
}

// stillThere returns those of the objects that the cluster has, whatever the selectors say.
func (w *Watch) stillThere(ctx context.Context, objects []*event.Object) (map[identity]bool, error) {
	there := make(map[identity]bool)
	if len(objects) < manyMissing {
		for _, o := range objects {
			gone, err := w.isGone(ctx, o)
			if err != nil {
				return nil, err
			}
			there[identity{o.Key(), o.UID()}] = !gone
		}
		return there, nil
	}
	var listed map[identity]bool // nil: not allowed to list
	err := w.ask(ctx, func() (err error) {
		listed, err = w.listIdentities(ctx)
		return err
	})
	for _, o := range objects {
		id := identity{o.Key(), o.UID()}
		there[id] = listed == nil || listed[id]
	}
	return there, err
}

// ask repeats a question until the API server answers it or says that it will not.
func (w *Watch) ask(ctx context.Context, try func() error) error {
	pause := pause{Backoff: w.factory.cfg.Backoff}
	for {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isDenied(err) || isAnswer(err) {
			w.log.Warn("not allowed to find out whether an object was deleted or only left the selector; it is taken for deselected",
				"watch", w.name, "err", err)
			return nil
		}
		if err := pause.wait(ctx, retryAfter(err)); err != nil {
			return err
		}
	}
}

// exists gets the metadata of an object.
func (w *Watch) exists(ctx context.Context, o *event.Object) (bool, error) {
	namespace := o.Key().Namespace
	path := resourcePath(w.spec.Resource, namespace) + "/" + url.PathEscape(o.Key().Name)
	resp, err := w.factory.cfg.Client.get(ctx, path, nil, acceptMetadata, idleTimeout)
	if apierrors.IsForbidden(err) {
		return w.existsInList(ctx, o)
	}
	if apierrors.IsNotFound(err) {
		return false, w.confirmMissing(ctx, o, err)
	}
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	in := newStream(resp.Body, w.heard)
	text, err := in.text()
	if err != nil {
		return false, err
	}
	return failed(text, nil).uid == o.UID(), nil
}

// confirmMissing returns nil if the API server says of this object, or of the whole resource, that it does not exist. Anything else
// that is not found may be the doing of a proxy, or of an API server that is starting.
func (w *Watch) confirmMissing(ctx context.Context, o *event.Object, missing error) error {
	var status apierrors.APIStatus
	if errors.As(missing, &status) && status.Status().Details != nil && status.Status().Details.Name == o.Key().Name {
		return nil
	}
	_, err := w.factory.cfg.Client.discover(ctx, w.spec.Resource)
	switch {
	case errors.Is(err, errAbsent):
		return nil
	case err != nil:
		return err
	}
	return errUnconfirmed
}

var errUnconfirmed = errors.New("the API server does not know the object's page but has its resource")

// existsInList is for who may list but not get.
func (w *Watch) existsInList(ctx context.Context, o *event.Object) (bool, error) {
	q := url.Values{"fieldSelector": {"metadata.name=" + o.Key().Name}}
	list, err := w.listMetadata(ctx, resourcePath(w.spec.Resource, o.Key().Namespace), q)
	if err != nil {
		return false, err
	}
	for _, item := range list.Items {
		if item, ok := item.(*event.Object); ok && item.Key() == o.Key() {
			return item.UID() == o.UID(), nil
		}
	}
	return false, nil
}

// listIdentities lists everything in the watch's namespace, page by page.
func (w *Watch) listIdentities(ctx context.Context) (map[identity]bool, error) {
	all := make(map[identity]bool)
	q := url.Values{"limit": {strconv.Itoa(500)}}
	for {
		list, err := w.listMetadata(ctx, w.path(), q)
		if isExpired(err) && q.Has("continue") { // took too long: once more, at once
			q = url.Values{}
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			if o, ok := item.(*event.Object); ok {
				all[identity{o.Key(), o.UID()}] = true
			}
		}
		if list.Continue == "" {
			return all, nil
		}
		q.Set("continue", list.Continue)
	}
}

func (w *Watch) listMetadata(ctx context.Context, path string, q url.Values) (*internalversion.List, error) {
	resp, err := w.factory.cfg.Client.get(ctx, path, q, acceptMetadataList, idleTimeout)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	spec := Spec{Resource: w.spec.Resource, Cache: config.CacheMetadata}
	ignore := func(*objectError) runtime.Object { return nil }
	return newListing(&spec, w.resource.Load(), newStream(resp.Body, w.heard), ignore).read()
}
