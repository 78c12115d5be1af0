package process

import (
	"github.com/deltarouter/deltarouter/pkg/event"
	pluginv1 "github.com/deltarouter/deltarouter/proto/plugin/v1"
)

// deltaOverhead is what a delta takes on the wire at most, beside its texts.
const deltaOverhead = 128

// deltaSize returns how many bytes of a message d takes at most.
func deltaSize(d *event.Delta) int {
	o := d.Object()
	r := o.Resource()
	n := deltaOverhead + len(d.Source) + len(r.Cluster) + len(r.Group) + len(r.Version) + len(r.Resource) + len(r.Kind)
	n += len(o.Key().Namespace) + len(o.Key().Name) + len(o.UID()) + len(o.ResourceVersion())
	if e := d.Event; e != nil {
		n += deltaOverhead + len(e.ID) + len(e.Type) + len(e.Source) + len(e.Subject) + len(e.Route) + len(e.Data)
	}
	for _, state := range []*event.Object{d.New, d.Old} {
		if state != nil {
			n += len(state.JSON())
		}
	}
	return n
}

// encode makes the message of a batch. It refers to the objects' bytes, which nobody modifies.
func encode(batch []*event.Delta) []*pluginv1.Delta {
	deltas, all := make([]*pluginv1.Delta, len(batch)), make([]pluginv1.Delta, len(batch))
	for i, d := range batch {
		o, to := d.Object(), &all[i]
		r := o.Resource()
		to.Op = pluginv1.Op(d.Op)
		to.Source, to.Cluster, to.Resource, to.Kind = d.Source, r.Cluster, r.String(), r.Kind
		to.Namespace, to.Name, to.Uid, to.ResourceVersion = o.Key().Namespace, o.Key().Name, o.UID(), o.ResourceVersion()
		to.Initial, to.Stale, to.Redelivered, to.SeenUnixNano = d.Initial, d.Stale, d.Redelivered, d.Seen.UnixNano()
		to.Late, to.Repeat, to.Suppressed = d.Late, d.Repeat > 0, int64(d.Suppressed)
		if !d.Since.IsZero() {
			to.SinceUnixNano = d.Since.UnixNano()
		}
		if e := d.Event; e != nil {
			to.Event = &pluginv1.RouteEvent{
				Id: e.ID, Type: e.Type, Source: e.Source, Subject: e.Subject, Route: e.Route, TimeUnixNano: e.Time.UnixNano(), Data: e.Data,
			}
		}
		if d.New != nil {
			to.NewObject = d.New.JSON()
		}
		if d.Old != nil {
			to.OldObject = d.Old.JSON()
		}
		deltas[i] = to
	}
	return deltas
}
