package reflector

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// pageSize is the number of objects that are requested at once.
const pageSize = 500

// ManyMissing is the number of objects from which one list is cheaper than a get for each.
const ManyMissing = 16

// Inquiry makes requests to the API server about single objects of a watch. It is safe for
// concurrent use.
type Inquiry struct {
	watch   string // its name in logs
	log     *slog.Logger
	client  *client.Client
	target  *Target
	health  *Health
	backoff backoff.Policy
	cfg     *Config
	warned  atomic.Bool // that a question was refused
}

// NewInquiry returns an Inquiry for a watch.
func NewInquiry(cfg *Config) *Inquiry {
	return &Inquiry{
		watch: cfg.Name, log: cfg.Log, client: cfg.Client, target: cfg.Target, health: cfg.Health, backoff: cfg.Backoff,
		cfg: cfg,
	}
}

// Exists asks once whether an object that left the watch still exists in the cluster. If the
// request is forbidden, the object counts as existing.
func (i *Inquiry) Exists(ctx context.Context, o *event.Object) (there bool, err error) {
	there, err = i.exists(ctx, o)
	if i.refused(err) {
		return true, nil
	}
	return there, err
}

// Present asks once, by a list, which objects exist in the cluster, regardless of the selectors.
// If the request is forbidden, all count as existing.
func (i *Inquiry) Present(ctx context.Context, objects []*event.Object) (there map[persist.Incarnation]bool, err error) {
	listed, err := i.listIdentities(ctx, i.pathOf(objects))
	refused := i.refused(err)
	if err != nil && !refused {
		return nil, err
	}
	there = make(map[persist.Incarnation]bool, len(objects))
	for _, o := range objects {
		id := persist.Incarnation{Key: o.Key(), UID: o.UID()}
		there[id] = refused || listed[id]
	}
	return there, nil
}

// refused reports whether an error is the refusal of a question, and logs it once.
func (i *Inquiry) refused(err error) bool {
	if !client.IsDenied(err) && !client.IsAnswer(err) {
		return false
	}
	if !i.warned.Swap(true) {
		i.log.Warn("not allowed to check whether an object was deleted or deselected; it is taken for deselected: grant the verb get",
			"watch", i.watch, "err", err)
	}
	return true
}

// StillThere returns the objects that exist in the cluster, regardless of the selectors. It repeats
// the requests until the API server answers or ctx is done.
func (i *Inquiry) StillThere(ctx context.Context, objects []*event.Object) (there map[persist.Incarnation]bool, err error) {
	if len(objects) >= ManyMissing {
		err = i.ask(ctx, func() (err error) {
			there, err = i.Present(ctx, objects)
			return err
		})
		return there, err
	}
	there = make(map[persist.Incarnation]bool)
	for _, o := range objects {
		err := i.ask(ctx, func() (err error) {
			there[persist.Incarnation{Key: o.Key(), UID: o.UID()}], err = i.Exists(ctx, o)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return there, nil
}

// ask repeats a request until the API server answers.
func (i *Inquiry) ask(ctx context.Context, try func() error) error {
	pause := backoff.Series{Policy: i.backoff}
	for {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause.Max = client.MaxPause(i.backoff.Max, err)
		if err := pause.Wait(ctx, client.RetryAfter(err)); err != nil {
			return err
		}
	}
}

// exists requests the metadata of an object.
func (i *Inquiry) exists(ctx context.Context, o *event.Object) (bool, error) {
	namespace := o.Key().Namespace
	path := client.ResourcePath(i.target.GVR, namespace) + "/" + url.PathEscape(o.Key().Name)
	resp, err := i.client.Get(ctx, path, nil, client.AcceptMetadata, client.IdleTimeout)
	if apierrors.IsForbidden(err) {
		return i.existsInList(ctx, o)
	}
	if apierrors.IsNotFound(err) {
		return false, i.confirmMissing(ctx, o, err)
	}
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	in := wire.NewStream(resp.Body, i.health.Heard)
	text, err := in.Text()
	if err != nil {
		return false, err
	}
	return wire.Identify(text, nil).UID == o.UID(), nil
}

// confirmMissing returns nil if the API server says that this object, or the whole resource, does
// not exist. Any other 404 may come from a proxy, or from an API server that is starting.
func (i *Inquiry) confirmMissing(ctx context.Context, o *event.Object, missing error) error {
	if client.Names(missing, o.Key().Name) {
		return nil
	}
	_, err := i.client.Discover(ctx, i.target.GVR)
	if errors.Is(err, client.ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	return errUnconfirmed
}

var errUnconfirmed = errors.New("the API server has the resource, and its answer 404 does not name the object")

// existsInList replaces a get by a list, for a client that may list but not get.
func (i *Inquiry) existsInList(ctx context.Context, o *event.Object) (bool, error) {
	q := url.Values{"fieldSelector": {"metadata.name=" + o.Key().Name}}
	list, err := i.listAllMetadata(ctx, client.ResourcePath(i.target.GVR, o.Key().Namespace), q)
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

// pathOf returns the path of a list that has all the objects: of their namespace, or of the watch.
func (i *Inquiry) pathOf(objects []*event.Object) string {
	namespace := objects[0].Key().Namespace
	if namespace == "" || slices.ContainsFunc(objects, func(o *event.Object) bool { return o.Key().Namespace != namespace }) {
		return i.target.Path()
	}
	return client.ResourcePath(i.target.GVR, namespace)
}

// List returns the objects in a namespace that the watch selects, as of a moment after the call.
func (i *Inquiry) List(ctx context.Context, namespace string) (items []any, err error) {
	list, err := client.Pages(func(token string) (*internalversion.List, error) {
		return i.cfg.readPage(ctx, client.ResourcePath(i.target.GVR, namespace), metav1.ListOptions{Limit: pageSize, Continue: token}, &quirks{})
	})
	if err != nil {
		return nil, err
	}
	for _, item := range list.Items {
		items = append(items, item)
	}
	return items, nil
}

// listIdentities lists all objects of a path, page by page.
func (i *Inquiry) listIdentities(ctx context.Context, path string) (map[persist.Incarnation]bool, error) {
	list, err := i.listAllMetadata(ctx, path, url.Values{"limit": {strconv.Itoa(pageSize)}})
	if errors.Is(err, client.ErrIncomplete) { // took too long: one more try, at once
		list, err = i.listAllMetadata(ctx, path, url.Values{})
	}
	if err != nil {
		return nil, err
	}
	all := make(map[persist.Incarnation]bool, len(list.Items))
	for _, item := range list.Items {
		if o, ok := item.(*event.Object); ok {
			all[persist.Incarnation{Key: o.Key(), UID: o.UID()}] = true
		}
	}
	return all, nil
}

// listAllMetadata reads all pages of a list.
func (i *Inquiry) listAllMetadata(ctx context.Context, path string, q url.Values) (*internalversion.List, error) {
	return client.Pages(func(token string) (*internalversion.List, error) {
		q.Del("continue")
		if token != "" {
			q.Set("continue", token)
		}
		return i.listMetadata(ctx, path, q)
	})
}

func (i *Inquiry) listMetadata(ctx context.Context, path string, q url.Values) (*internalversion.List, error) {
	resp, err := i.client.GetWithin(ctx, path, q, client.AcceptMetadataList, i.cfg.HeaderTimeout, client.IdleTimeout)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	ignore := func(*wire.ObjectError) runtime.Object { return nil }
	return wire.NewListing(i.target.Metadata, i.target.Resource(), wire.NewStream(resp.Body, i.health.Heard), ignore).Read()
}

// All returns the objects that the watch selects, in the present format: as of exactly a version,
// or as of a moment after the call if the version is empty.
func (i *Inquiry) All(ctx context.Context, version string) (all []*event.Object, err error) {
	if !i.target.namespaced.Load() {
		found, err := i.client.Discover(ctx, i.target.GVR)
		if err != nil {
			return nil, err
		}
		i.target.discovered(found)
	}
	list, err := client.Pages(func(token string) (*internalversion.List, error) {
		opts := metav1.ListOptions{Limit: pageSize, Continue: token}
		if token == "" && version != "" {
			opts.ResourceVersion, opts.ResourceVersionMatch = version, metav1.ResourceVersionMatchExact
		}
		return i.cfg.readPage(ctx, i.target.Path(), opts, &quirks{})
	})
	if err != nil {
		return nil, err
	}
	for _, item := range list.Items {
		if o, ok := item.(*event.Object); ok {
			all = append(all, o)
		}
	}
	return all, nil
}

// RetryAfter returns the delay that the API server requests before the next try.
func RetryAfter(err error) time.Duration { return client.RetryAfter(err) }

// IsAnswered reports whether an error is the answer of the API server to a request.
func IsAnswered(err error) bool {
	return client.IsAnswer(err) || client.IsExpired(err) || client.IsAhead(err) || client.IsDenied(err)
}

// IsRefused reports whether the API server refuses to list the resource, or does not have it.
func IsRefused(err error) bool {
	return client.IsDenied(err) || client.IsAnswer(err) && !client.IsExpired(err) || errors.Is(err, client.ErrAbsent)
}
