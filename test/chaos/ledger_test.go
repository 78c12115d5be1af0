package chaos

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
)

// ledger compares the changes of objects with the delivered events.
type ledger struct {
	t *testing.T

	alive   map[string]string // by uid, the last resourceVersion of each existing object
	uidOf   map[string]string // by name, of existing objects
	seen    map[string]string // by uid, the newest delivered version
	deleted map[string]bool   // by uid, the delete was delivered
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	return &ledger{
		t: t, alive: make(map[string]string), uidOf: make(map[string]string),
		seen: make(map[string]string), deleted: make(map[string]bool),
	}
}

// step creates an object if it does not exist. Else it updates it, or deletes it one time in four.
func (l *ledger) step(maps routertest.Objects, name string, dice int) {
	l.t.Helper()
	uid, exists := l.uidOf[name]
	switch {
	case !exists:
		o := maps.Make(routertest.ConfigMap(name, "0"))
		l.uidOf[name] = string(o.GetUID())
		l.alive[string(o.GetUID())] = o.GetResourceVersion()
	case dice == 0:
		maps.Remove(name)
		delete(l.uidOf, name)
		delete(l.alive, uid)
	default:
		maps.Change(name, fmt.Sprintf(`{"data":{"value":"%d-%s"}}`, dice, l.alive[uid]))
		l.alive[uid] = maps.Version(name)
	}
}

// read records the deliveries of one life of the router. Within a life no object may go backwards;
// after a kill, earlier deliveries may be repeated.
func (l *ledger) read(events []routertest.Event) {
	l.t.Helper()
	inLife := make(map[string]int)
	for _, e := range events {
		version, _ := strconv.Atoi(e.K8sResourceVersion)
		if version < inLife[e.K8sUID] {
			l.t.Errorf("%s went back from %d to %d within one life", e, inLife[e.K8sUID], version)
		}
		inLife[e.K8sUID] = version
	}
	take(events, l.seen, l.deleted)
}

func take(events []routertest.Event, seen map[string]string, deleted map[string]bool) {
	for _, e := range events {
		if strings.HasSuffix(e.Type, ".deleted") {
			deleted[e.K8sUID] = true
			continue
		}
		old, _ := strconv.Atoi(seen[e.K8sUID])
		if now, _ := strconv.Atoi(e.K8sResourceVersion); now > old {
			seen[e.K8sUID] = e.K8sResourceVersion
		}
	}
}

// settled returns a missing event, assuming that these events are delivered too, or "".
func (l *ledger) settled(more []routertest.Event) string {
	seen, deleted := maps.Clone(l.seen), maps.Clone(l.deleted)
	take(more, seen, deleted)
	for uid, version := range l.alive {
		if seen[uid] != version {
			return fmt.Sprintf("%s exists at %s, the last that was delivered is %q", uid, version, seen[uid])
		}
	}
	for uid := range seen {
		if _, alive := l.alive[uid]; !alive && !deleted[uid] {
			return fmt.Sprintf("%s was delivered and is gone, and its delete was not delivered", uid)
		}
	}
	return ""
}
