package checkpoint

import (
	"encoding/json"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// withheld stands for the data of an event that is about a Secret.
const withheld = "null"

// eventPayload writes down what another route made of a delta that is owed. What a handler made of a Secret may have anything of it: of
// such an event only what does not depend on the handler is kept.
func eventPayload(d *event.Delta) (f fields) {
	e := *d.Event
	if !Whole(d) {
		e.Type, e.Subject, e.Data = event.TypePrefix+d.Op.String(), d.Key().String(), []byte(withheld)
	}
	f.flags(e.Redelivered, !e.Time.IsZero())
	if !e.Time.IsZero() {
		f.uint(uint64(e.Time.UnixNano())) //nolint:gosec // read back as it was
	}
	for _, text := range []string{e.ID, e.Type, e.Source, e.Subject, e.Route, e.K8sUID, e.K8sResourceVersion} {
		f.text(text)
	}
	f.bytes(e.Data)
	return f
}

func (o *Owed) parseEvent(r *reader) error {
	e := &event.Event{}
	flags := r.uint()
	e.Redelivered = flags&1 != 0
	if flags&2 != 0 {
		e.Time = time.Unix(0, int64(r.uint())) //nolint:gosec // it was one
	}
	for _, text := range []*string{&e.ID, &e.Type, &e.Source, &e.Subject, &e.Route, &e.K8sUID, &e.K8sResourceVersion} {
		*text = r.text()
	}
	e.Data = r.bytes()
	if r.err == nil && len(e.Data) > 0 && !json.Valid(e.Data) {
		return corruptf("the data of an event is not JSON")
	}
	o.Delta.Event = e
	return nil // what is cut short is the caller's to see
}
