package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// object is a pod of the simulated cluster. n identifies the state: no other state of any object
// ever has it, even if resourceVersions repeat.
type object struct {
	name       string
	uid, rv, n int
	web        bool // has the label that the source web selects
}

func (o *object) text(kind string) string {
	app := "other"
	if o.web {
		app = "web"
	}
	scope := "near"
	if far(o.name) {
		scope = "far"
	}
	return fmt.Sprintf(`{%s"metadata":{"name":%q,"namespace":"default","uid":"%d","resourceVersion":"%d","labels":{"app":%q,"scope":%q},`+
		`"annotations":{"n":"%d"}}}`, kind, o.name, o.uid, o.rv, app, scope, o.n)
}

// moment is a change of a name in simulated time: a new state, or the end of its object.
type moment struct {
	uid, n int
	gone   bool
	web    bool
	at     int // number of moments before, of all names
	when   time.Time
}

type happening struct {
	rv       int
	old, now *object
}

// cluster is the model of the API server: its objects and its whole history.
type cluster struct {
	mu        sync.Mutex
	rv        int
	together  bool // the changes of a transaction are under way
	uids, ns  int
	objects   map[string]object
	history   []happening
	compacted int // watches from before this version get 410
	backup    *backup

	moments int
	past    map[string][]moment

	streams     []*stream
	down        bool
	noWatchList bool // an API server that does not stream initial objects
	barren      barren
	truncate    int  // the next stream of initial objects breaks after this number; 0: never
	lists       int  // number of list requests
	rewound     bool // it was restored from a backup at least once
}

// backup is the state that rewind restores.
type backup struct {
	rv      int
	objects map[string]object
}

func newCluster() *cluster {
	return &cluster{rv: 10, objects: map[string]object{}, past: map[string][]moment{}}
}

// change is a kind of change of an object.
type change int

const (
	update change = iota
	remove
	relabel
	recreate
	changes
)

// happen changes the object of a name, or creates it if it does not exist.
func (c *cluster) happen(name string, what change, web bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alter(name, what, web)
}

// group changes up to four objects in one transaction, so that their events have one
// resourceVersion. a and b choose them, a change before which a bookmark is sent, and one before
// which the connections end; possibly none.
func (c *cluster) group(a, b int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv++
	c.together = true
	for i := range 2 + b%3 {
		if i == a/names%6 {
			c.mark()
		}
		if i == b/3%6 {
			c.hangUp(false)
		}
		c.alter(nameOf(a+i), change((a+b*i)%int(recreate)), i%3 > 0)
	}
	c.together = false
}

func (c *cluster) alter(name string, what change, web bool) {
	now, there := c.objects[name]
	switch {
	case !there:
		c.uids++
		c.set(object{name: name, uid: c.uids, web: web})
	case what == remove:
		c.end(now)
	case what == recreate:
		c.end(now)
		c.uids++
		c.set(object{name: name, uid: c.uids, web: web})
	case what == relabel:
		now.web = !now.web
		c.set(now)
	default:
		c.set(now)
	}
}

// step moves to the version of the next change.
func (c *cluster) step() {
	if !c.together {
		c.rv++
	}
}

func (c *cluster) set(o object) {
	c.step()
	c.ns++
	o.rv, o.n = c.rv, c.ns
	h := happening{rv: c.rv, now: &o}
	if old, there := c.objects[o.name]; there {
		h.old = &old
	}
	c.objects[o.name] = o
	c.remember(o.name, moment{uid: o.uid, n: o.n, web: o.web})
	c.tell(h)
}

func (c *cluster) end(o object) {
	c.step()
	delete(c.objects, o.name)
	c.remember(o.name, moment{uid: o.uid, n: o.n, gone: true})
	c.tell(happening{rv: c.rv, old: &o})
}

func (c *cluster) remember(name string, m moment) {
	c.moments++
	m.at, m.when = c.moments, time.Now()
	c.past[name] = append(c.past[name], m)
}

func (c *cluster) tell(h happening) {
	c.history = append(c.history, h)
	for _, s := range c.streams {
		s.push(s.frame(h))
	}
}

// now returns the number of moments.
func (c *cluster) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moments
}

// compact drops the history.
func (c *cluster) compact() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv++ // another resource changed
	c.compacted = c.rv
}

// bookmark sends bookmarks to all watches.
func (c *cluster) bookmark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv++
	c.mark()
}

func (c *cluster) mark() {
	for _, s := range c.streams {
		if !s.from(c.rv) {
			s.push(fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+"\n", c.rv))
		}
	}
}

// cut ends all connections; half: in the middle of an event.
func (c *cluster) cut(half bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangUp(half)
}

func (c *cluster) hangUp(half bool) {
	for _, s := range c.streams {
		if half {
			s.push(`{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"na`)
		}
		s.ended = true
		s.signal()
	}
	c.streams = nil
}

// save makes a backup.
func (c *cluster) save() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backup = &backup{c.rv, maps.Clone(c.objects)}
}

// rewind restores the backup.
func (c *cluster) rewind() {
	c.cut(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rewound = true
	c.rv = c.backup.rv
	c.history = slices.DeleteFunc(c.history, func(h happening) bool { return h.rv > c.rv })
	c.compacted = min(c.compacted, c.rv)
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		o := c.objects[name]
		if was, there := c.backup.objects[name]; !there || was.uid != o.uid {
			c.remember(name, moment{uid: o.uid, n: o.n, gone: true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.backup.objects)) {
		if was := c.backup.objects[name]; c.objects[name] != was {
			c.remember(name, moment{uid: was.uid, n: was.n, web: was.web})
		}
	}
	c.objects = maps.Clone(c.backup.objects)
	c.backup = nil
}

// advance increases the version as changes of other resources do.
func (c *cluster) advance(versions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv += versions
}

// heard reports whether there are at least so many watches, and none is silent.
func (c *cluster) heard(watches int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams) >= watches && !slices.ContainsFunc(c.streams, func(s *stream) bool { return s.silent })
}

func (c *cluster) listed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

func (c *cluster) setDown(down bool) {
	c.mu.Lock()
	c.down = down
	c.mu.Unlock()
	if down {
		c.cut(false)
	}
}

// truncateNext makes the next stream of initial objects break.
func (c *cluster) truncateNext(after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.truncate = after
}
