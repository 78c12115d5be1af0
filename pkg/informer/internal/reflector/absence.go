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

// confirmedFor is the time for which it is not asked again whether the resource is served in
// another version.
const confirmedFor = time.Minute

// absence is a resource that discovery does not have.
type absence struct {
	cfg       *Config
	inquiry   *Inquiry
	confirmed int       // times in a row
	vanished  time.Time // the time at which it was confirmed that the resource does not exist; zero: it is not
	compared  time.Time // the time of the last comparison with another version
}

// failed is called when discovery has failed for another reason.
func (a *absence) failed() { a.confirmed, a.vanished = 0, time.Time{} }

// discover discovers the resource. While it is known not to exist, all watches share the answers,
// which are not older than a pause between two of them. Before that each makes its own requests,
// because the objects are deleted only after several answers.
func (a *absence) discover(ctx context.Context, pause time.Duration) (client.Found, error) {
	if a.vanished.IsZero() {
		return a.cfg.Client.Discover(ctx, a.cfg.Target.GVR)
	}
	return a.cfg.Absences.Discover(ctx, a.cfg.Target.GVR, pause)
}

// missed is called for each answer of discovery without the resource, and returns the problem. The
// objects are gone only if the resource is served in no other version and its definition does not
// exist.
func (a *absence) missed(ctx context.Context) error {
	if time.Since(a.vanished) < confirmedFor {
		return client.ErrAbsent
	}
	if a.confirmed++; a.confirmed < confirmations && !a.cfg.State.Empty() {
		return client.ErrAbsent
	}
	err := a.cfg.Client.Remains(ctx, a.cfg.Target.GVR)
	if err == nil {
		a.cfg.Sink.Vanish(ctx)
		a.vanished = time.Now()
		return client.ErrAbsent
	}
	unserved, ok := errors.AsType[*client.UnservedError](err)
	if !ok {
		return err
	}
	// The objects exist, but no watch can follow them. Deletes at least are found by a list in the
	// other version.
	a.vanished = time.Time{}
	if unserved.Other == "" || a.cfg.State.Empty() || time.Since(a.compared) < 2*a.cfg.ProbeInterval {
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
