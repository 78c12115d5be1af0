package chaos

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
)

// ruleBook records the changes of ConfigMaps between bad and good, and the reports about them.
type ruleBook struct {
	maps     routertest.Objects
	random   *rand.Rand
	head, ns string // of the configuration
	began    time.Time
	lives    int

	gate sync.RWMutex // held for writing: no changes

	mu    sync.Mutex
	names map[string]*lampLife // the present or last object of each name
	all   []*badTime           // in the order of their begin
	n     int

	hidden bool // the routes do not see the far objects
	unseen int  // times that ended because of that

	told []ruleEvent // each id once, in the order of the first arrival
}

// lampLife is one object of a name.
type lampLife struct {
	uid, group string
	version    int
	bad, gone  bool
	open       *badTime // nil: it is good, or unseen
}

// badTime is a time during which an object was bad, and the routes saw it.
type badTime struct {
	uid, group string
	begin, end int  // resourceVersions; end is 0 while it lasts, and if the object was deleted
	gone       bool // its object was deleted
	unseen     bool // the routes did not see it any more
}

func (b *badTime) ended() bool { return b.gone || b.unseen || b.end > 0 }

func groups() []string { return []string{"a", "b", "c"} }

// rulesPace is the time between two changes. With it the bad times are about as long as the
// durations of the rules.
const rulesPace = 8 * time.Millisecond

// start makes changes until stop is called.
func (b *ruleBook) start(t *testing.T) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		pace := time.NewTicker(rulesPace)
		defer pace.Stop()
		for {
			select {
			case <-done:
				return
			case <-pace.C:
			}
			group := groups()[b.random.IntN(3)]
			b.gate.RLock()
			ok := b.turn(t, fmt.Sprintf("o-%s-%d", group, b.random.IntN(30)), group, b.random.IntN(10))
			b.gate.RUnlock()
			if !ok {
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { close(done); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// turn makes, deletes or changes an object, or turns it from good to bad or back. It returns false
// if it cannot.
func (b *ruleBook) turn(t *testing.T, name, group string, dice int) bool {
	t.Helper()
	b.mu.Lock()
	life := b.names[name]
	b.mu.Unlock()
	value := "bad"
	if life != nil && !life.gone && life.bad {
		value = "good"
	}
	var err error
	var uid, version string
	switch {
	case life == nil || life.gone:
		o, failed := b.maps.Create(t.Context(), routertest.ConfigMap(name, value, "group="+group, "scope="+scopeOf(name)), metav1.CreateOptions{})
		if err = failed; err == nil {
			uid, version = string(o.GetUID()), o.GetResourceVersion()
		}
	case dice == 0:
		err = b.maps.Delete(t.Context(), name, metav1.DeleteOptions{})
	default:
		patch := fmt.Sprintf(`{"data":{"value":%q}}`, value)
		if dice < 4 {
			patch = fmt.Sprintf(`{"data":{"other":"%d"}}`, rand.Uint64()) //nolint:gosec // no secret
			value = ""
		}
		o, failed := b.maps.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err = failed; err == nil {
			uid, version = life.uid, o.GetResourceVersion()
		}
	}
	if err != nil {
		if t.Context().Err() == nil {
			t.Errorf("the history ended: %v", err)
		}
		return false
	}
	b.note(name, group, uid, value, number(version))
	return true
}

// note records a change. uid is empty for a delete, and value if the object is as good or bad as
// before.
func (b *ruleBook) note(name, group, uid, value string, version int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	life := b.names[name]
	switch {
	case uid == "":
		if life.gone = true; life.open != nil {
			life.open.gone, life.open = true, nil
		}
		return
	case life == nil || life.gone:
		life = &lampLife{uid: uid, group: group}
		b.names[name] = life
	}
	life.version = version
	switch value {
	case "bad":
		if life.bad = true; !b.hidden || scopeOf(name) != "far" {
			b.begin(life)
		}
	case "good":
		if life.bad = false; life.open != nil {
			life.open.end, life.open = version, nil
		}
	}
}

// begin records that an object is bad from its version on.
func (b *ruleBook) begin(life *lampLife) {
	life.open = &badTime{uid: life.uid, group: life.group, begin: life.version}
	b.all = append(b.all, life.open)
}

// times returns all times in the order of their begin.
func (b *ruleBook) times() []*badTime {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*badTime(nil), b.all...)
}

// timeOf returns the time during which an object had this version; nil: it was good then.
func (b *ruleBook) timeOf(uid string, version int) *badTime {
	for _, when := range b.times() {
		if when.uid == uid && when.begin <= version && (when.end == 0 || version < when.end) {
			return when
		}
	}
	return nil
}

// read records the reports of one life of the router.
func (b *ruleBook) read(t *testing.T, events []routertest.Event) {
	t.Helper()
	b.lives++
	b.told = b.with(t, events)
}

// with returns the earlier reports and these, each id once.
func (b *ruleBook) with(t *testing.T, events []routertest.Event) []ruleEvent {
	t.Helper()
	all := append([]ruleEvent(nil), b.told...)
	known := make(map[string]bool, len(all))
	for _, e := range all {
		known[e.ID] = true
	}
	for _, e := range events {
		r, err := readRuleEvent(e)
		must.Succeed(t, err)
		if !known[e.ID] {
			known[e.ID] = true
			all = append(all, r)
		}
	}
	return all
}

// missing returns a missing report, or "". There must be no changes meanwhile.
func (b *ruleBook) missing(told []ruleEvent) string {
	last := make(map[string]map[string]string) // by route and uid
	for _, e := range told {
		if last[e.Route] == nil {
			last[e.Route] = make(map[string]string)
		}
		last[e.Route][e.K8sUID] = e.op
	}
	bad := make(map[string]bool)
	for _, when := range b.times() {
		bad[when.uid] = !when.ended()
	}
	for uid, is := range bad {
		for _, route := range []string{"state", "lasting", "calm"} {
			if is != (last[route][uid] == "entered") {
				return fmt.Sprintf("%s: %s is bad: %t, and the last that was told is %q", route, uid, is, last[route][uid])
			}
		}
	}
	return b.missingLimited(told, bad)
}

// missingLimited is missing for the route that reports groups. bad has all objects.
func (b *ruleBook) missingLimited(told []ruleEvent, bad map[string]bool) string {
	since := make(map[string]map[string]bool) // by group, the objects since it was reported
	for _, e := range told {
		if e.Route != "limited" {
			continue
		}
		group := b.groupOf(e.K8sUID)
		switch {
		case e.op == "left":
			delete(since, group)
		case since[group] == nil:
			since[group] = map[string]bool{e.K8sUID: true}
		default:
			since[group][e.K8sUID] = true
		}
	}
	anyBad := make(map[string]bool)
	for uid, is := range bad {
		if !is {
			continue
		}
		group := b.groupOf(uid)
		if anyBad[group] = true; !since[group][uid] {
			return fmt.Sprintf("limited: %s is bad, and that was not told", uid)
		}
	}
	for group := range since {
		if !anyBad[group] {
			return fmt.Sprintf("limited: none of group %s is bad, and its end was not told", group)
		}
	}
	return ""
}

// groupOf returns the group of an object that was bad.
func (b *ruleBook) groupOf(uid string) string {
	for _, when := range b.times() {
		if when.uid == uid {
			return when.group
		}
	}
	return ""
}

// passed returns how many reports of a group the route limited delivered.
func (b *ruleBook) passed(told []ruleEvent, group string) (n int) {
	for _, e := range told {
		if e.Route == "limited" && e.op == "entered" && e.group() == group {
			n++
		}
	}
	return n
}

// route returns the reports of a route by uid.
func (b *ruleBook) route(name string) map[string][]ruleEvent {
	byUID := make(map[string][]ruleEvent)
	for _, e := range b.told {
		if e.Route == name {
			byUID[e.K8sUID] = append(byUID[e.K8sUID], e)
		}
	}
	return byUID
}
