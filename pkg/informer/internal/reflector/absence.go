package reflector

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
)

// confirmations is the number of successive answers of discovery without the resource after which
// its objects are deleted: an API server that is starting may not know all of its resources yet.
const confirmations = 3

// absence is a resource that discovery does not have.
type absence struct {
	cfg       *Config
	inquiry   *Inquiry
	confirmed int       // times in a row
	compared  time.Time // the time of the last comparison with another version
}

// failed is called when discovery has failed for another reason.
func (a *absence) failed() { a.confirmed = 0 }

// missed is called for each answer of discovery without the resource, and returns the problem. The
// objects are gone only if the resource is served in no other version and its definition does not
// exist.
func (a *absence) missed(ctx context.Context) error {
	if a.confirmed++; a.confirmed < confirmations && !a.cfg.State.Empty() {
		return client.ErrAbsent
	}
	err := a.cfg.Client.Remains(ctx, a.cfg.Target.GVR)
	var unserved *client.UnservedError
	switch {
	case err == nil:
		a.cfg.Sink.Vanish(ctx)
		return client.ErrAbsent
	case !errors.As(err, &unserved):
		return err
	case unserved.Other == "" || a.cfg.State.Empty() || time.Since(a.compared) < 2*a.cfg.ProbeInterval:
		return unserved
	}
	if err := a.compare(ctx, unserved.Resource.GroupResource().WithVersion(unserved.Other)); err != nil {
		return fmt.Errorf("%w; looking for its objects there: %w", unserved, err)
	}
	a.compared = time.Now()
	return unserved
}

// compare removes the objects that another version of the resource does not have.
func (a *absence) compare(ctx context.Context, other schema.GroupVersionResource) error {
	if !a.cfg.State.Loader().Wait(ctx) {
		return ctx.Err()
	}
	list, err := a.inquiry.listAllMetadata(ctx, client.ResourcePath(other, a.cfg.Target.Namespace), url.Values{"limit": {strconv.Itoa(500)}})
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(list.Items))
	for _, item := range list.Items {
		if o, ok := item.(*event.Object); ok {
			there[o.UID()] = true
		}
	}
	a.cfg.Plan.MustList()
	// The removed objects belong to another resourceVersion than the applied one.
	a.cfg.State.Position.SetRelisting()
	return a.cfg.Sink.Remove(ctx, there)
}
