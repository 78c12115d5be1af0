package apply

import (
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
)

// deletesKept is the number of DELETED events that are remembered.
const deletesKept = 1024

// deletes are the last DELETED events, so that an earlier event of such an object, which a server
// sends once more, does not bring the object back. It has at most [deletesKept] of them: API
// servers repeat only the events of the last resourceVersion, and among those none precedes the
// delete of its object.
type deletes struct {
	versions map[string]string // by uid
	uids     []string          // a ring
	next     int               // the place of the oldest one, if the ring is full
}

func (d *deletes) add(o *event.Object) {
	uid := o.UID()
	if uid == "" || o.ResourceVersion() == "" {
		return
	}
	if last, known := d.versions[uid]; known {
		if !persist.NotAbove(o.ResourceVersion(), last) {
			d.versions[uid] = o.ResourceVersion()
		}
		return
	}
	if d.versions == nil {
		d.versions = make(map[string]string)
	}
	d.versions[uid] = o.ResourceVersion()
	if len(d.uids) < deletesKept {
		d.uids = append(d.uids, uid)
		return
	}
	delete(d.versions, d.uids[d.next])
	d.uids[d.next] = uid
	d.next = (d.next + 1) % deletesKept
}

// has reports whether an object was gone after the state o.
func (d *deletes) has(o *event.Object) bool {
	last, known := d.versions[o.UID()]
	return known && persist.NotAbove(o.ResourceVersion(), last)
}

func (d *deletes) clear() { *d = deletes{} }
