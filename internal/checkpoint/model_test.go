package checkpoint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

var (
	modelWatches  = []string{"w1", "w2"}
	modelRoutes   = []string{"r1", "r2"}
	modelHandlers = []string{"h1", "h2"}
)

// model is the content of a state file as maps.
type model struct {
	cluster  string
	watches  map[string]*modelWatch
	routes   map[string]map[uint64]checkpoint.Pending
	rules    map[string]map[string]string // by route, and by kind and key
	memories map[string]map[string]checkpoint.Value
	intents  int // the number of intents so far
}

type modelWatch struct {
	fed       string
	relisting bool
	objects   map[event.Key]*event.Object
	intents   map[checkpoint.Identity]modelIntent
}

// modelIntent has the number of the first intent of a uid, and the state of the last one.
type modelIntent struct {
	number int
	state  string
}

func newModel() *model {
	return &model{
		watches: map[string]*modelWatch{}, routes: map[string]map[uint64]checkpoint.Pending{}, rules: map[string]map[string]string{},
		memories: map[string]map[string]checkpoint.Value{},
	}
}

func (m *model) watch(id string) *modelWatch {
	if m.watches[id] == nil {
		m.watches[id] = &modelWatch{objects: map[event.Key]*event.Object{}, intents: map[checkpoint.Identity]modelIntent{}}
	}
	return m.watches[id]
}

func (m *model) intend(watch string, intents []*event.Object) {
	all := m.watch(watch).intents
	for _, o := range intents {
		id := checkpoint.Identity{Key: o.Key(), UID: o.UID()}
		m.intents++
		in := modelIntent{m.intents, string(o.JSON())}
		if before, ok := all[id]; ok {
			in.number = before.number
		}
		all[id] = in
	}
}

func (m *model) write(cut checkpoint.Cut) {
	if cut.Cluster != "" {
		m.cluster = cut.Cluster
	}
	for _, c := range cut.Watches {
		if c.Reset {
			delete(m.watches, c.ID)
		}
		w := m.watch(c.ID)
		w.fed, w.relisting = c.Applied, c.Relisting
		for _, id := range c.Deleted {
			delete(w.objects, id.Key)
			delete(w.intents, id)
		}
		for _, o := range c.Put {
			w.objects[o.Key()] = o
			delete(w.intents, checkpoint.Identity{Key: o.Key(), UID: o.UID()})
		}
	}
	for _, c := range cut.Routes {
		if m.routes[c.Name] == nil {
			m.routes[c.Name], m.rules[c.Name] = map[uint64]checkpoint.Pending{}, map[string]string{}
		}
		for _, r := range c.Rules {
			if delete(m.rules[c.Name], string(r.Kind)+string(r.Key)); r.Value != nil {
				m.rules[c.Name][string(r.Kind)+string(r.Key)] = string(r.Value)
			}
		}
		for _, id := range c.Removed {
			delete(m.routes[c.Name], id)
		}
		for _, o := range c.Put {
			m.routes[c.Name][o.ID] = o
		}
	}
	for _, c := range cut.Memories {
		if m.memories[c.Handler] == nil {
			m.memories[c.Handler] = map[string]checkpoint.Value{}
		}
		for _, key := range c.Removed {
			delete(m.memories[c.Handler], key)
		}
		for _, v := range c.Put {
			m.memories[c.Handler][v.Key] = v
		}
	}
}

func (m *model) checkMemories(t *rapid.T, db *checkpoint.DB) {
	for _, handler := range modelHandlers {
		got, err := db.LoadMemory(handler)
		if err != nil || len(got) != len(m.memories[handler]) {
			t.Fatalf("handler %s remembers %d values, want %d, %v", handler, len(got), len(m.memories[handler]), err)
		}
		for _, v := range got {
			if want, ok := m.memories[handler][v.Key]; !ok || string(v.Value) != string(want.Value) || !v.Expires.Equal(want.Expires) {
				t.Fatalf("handler %s: %q is %q until %v, want %q until %v", handler, v.Key, v.Value, v.Expires, want.Value, want.Expires)
			}
		}
	}
}

func (m *model) checkRules(t *rapid.T, db *checkpoint.DB) {
	for _, name := range modelRoutes {
		got, err := db.LoadRules(name)
		if err != nil || len(got) != len(m.rules[name]) {
			t.Fatalf("the rules of route %s know %d records, want %d, %v", name, len(got), len(m.rules[name]), err)
		}
		for _, r := range got {
			if want, ok := m.rules[name][string(r.Kind)+string(r.Key)]; !ok || string(r.Value) != want {
				t.Fatalf("the rules of route %s: %c %q is %q, want %q", name, r.Kind, r.Key, r.Value, want)
			}
		}
	}
}

// check compares the model with the content of a state file.
func (m *model) check(t *rapid.T, db *checkpoint.DB) {
	m.checkMemories(t, db)
	m.checkRules(t, db)
	if db.Cluster() != m.cluster {
		t.Fatalf("cluster %q, want %q", db.Cluster(), m.cluster)
	}
	for _, id := range modelWatches {
		got, err := db.LoadWatch(id)
		must.Succeed(t, err)
		want := m.watches[id]
		if got == nil || want == nil {
			if got != nil || want != nil {
				t.Fatalf("watch %s: %v, want %v", id, got, want)
			}
			continue
		}
		if got.Applied != want.fed || got.Relisting != want.relisting || len(got.Objects) != len(want.objects) || len(got.Intents) != len(want.intents) {
			t.Fatalf("watch %s: %s %v %d %d, want %s %v %d %d", id, got.Applied, got.Relisting, len(got.Objects), len(got.Intents),
				want.fed, want.relisting, len(want.objects), len(want.intents))
		}
		for _, o := range got.Objects {
			parsed, err := event.ParseObject(nil, string(o.JSON))
			if err != nil || want.objects[parsed.Key()] == nil || string(want.objects[parsed.Key()].JSON()) != string(o.JSON) {
				t.Fatalf("watch %s: object %s is not what was written", id, parsed)
			}
		}
		last := 0
		for _, in := range got.Intents {
			wanted := want.intents[in.Identity]
			if wanted.number <= last || wanted.state != in.JSON {
				t.Fatalf("watch %s: intent %v was not written, not so, or not after the one before it", id, in)
			}
			last = wanted.number
		}
	}
	for _, name := range modelRoutes {
		got, err := db.LoadRoute(name, checkpoint.Part{}, func(string) *event.Resource { return nil })
		if err != nil || len(got) != len(m.routes[name]) {
			t.Fatalf("route %s owes %d, want %d, %v", name, len(got), len(m.routes[name]), err)
		}
		backlog, err := db.Backlog(name)
		if route, owned, all := db.BacklogBytes(name); err != nil || owned != 0 || backlog.N != len(got) || route != backlog.Bytes || all < route || route < int64(24*len(got)) {
			t.Fatalf("route %s owes %+v, %d of %d bytes, want %d, %v", name, backlog, route, all, len(got), err)
		}
		if n := len(got); n > 0 {
			if backlog.Last != got[n-1].ID {
				t.Fatalf("route %s owes up to %d, want %d", name, backlog.Last, got[n-1].ID)
			}
			from, to, limit := got[n/3].ID, got[n-1].ID, max(1, n/3)
			some, err := db.LoadRoute(name, checkpoint.Part{After: from, Before: to, Limit: limit}, func(string) *event.Resource { return nil })
			var want []checkpoint.Pending
			for _, o := range got {
				if (o.ID > from || from == 0) && (o.ID < to || to == 0) && len(want) < limit {
					want = append(want, o)
				}
			}
			if err != nil || fmt.Sprint(ids(some)) != fmt.Sprint(ids(want)) {
				t.Fatalf("between %d and %d there are %v, want %v, %v", from, to, ids(some), ids(want), err)
			}
		}
		if some, err := db.LoadRoute(name, checkpoint.Part{Bytes: 1}, func(string) *event.Resource { return nil }); err != nil || len(some) != min(1, len(got)) {
			t.Fatalf("a byte of route %s has %d deltas, %v", name, len(some), err)
		}
		for _, o := range got {
			if describe(name, o) != describe(name, m.routes[name][o.ID]) {
				t.Fatalf("got\n%swant\n%s", describe(name, o), describe(name, m.routes[name][o.ID]))
			}
		}
	}
}

func drawValue(t *rapid.T) checkpoint.Value {
	v := checkpoint.Value{
		Key:   fmt.Sprintf("k%d", rapid.IntRange(0, 30).Draw(t, "key")),
		Value: []byte(strings.Repeat(rapid.StringN(0, 20, -1).Draw(t, "text"), rapid.SampledFrom([]int{0, 1, 20, 400}).Draw(t, "times"))),
	}
	if rapid.Bool().Draw(t, "ends") {
		v.Expires = time.Unix(rapid.Int64Range(0, 1e9).Draw(t, "expires"), 1)
	}
	return v
}

func ids(owed []checkpoint.Pending) (list []uint64) {
	for _, o := range owed {
		list = append(list, o.ID)
	}
	return list
}

func drawObject(t *rapid.T) *event.Object {
	// Few names, many sizes: pages split, join and overflow.
	body := strings.Repeat(rapid.StringN(0, 20, -1).Draw(t, "text"), rapid.SampledFrom([]int{0, 1, 20, 400}).Draw(t, "times"))
	name := fmt.Sprintf("n%d", rapid.IntRange(0, 60).Draw(t, "name"))
	text := fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":"u%d","resourceVersion":"1"},"body":%s}`, name, rapid.IntRange(0, 3).Draw(t, "uid"), quoted(body))
	o, err := event.ParseObject(resource("", "pods"), text)
	must.Succeed(t, err)
	return o
}

func drawIdentity(t *rapid.T) checkpoint.Identity {
	return identity(fmt.Sprintf("n%d", rapid.IntRange(0, 60).Draw(t, "name")), fmt.Sprintf("u%d", rapid.IntRange(0, 3).Draw(t, "uid")))
}

func drawPending(t *rapid.T) checkpoint.Pending {
	d := &event.Delta{Source: "s", Op: rapid.SampledFrom(event.Ops()).Draw(t, "op"), Initial: rapid.Bool().Draw(t, "initial")}
	d.Suppressed = rapid.SampledFrom([]int{0, 0, 1, 1000}).Draw(t, "suppressed")
	if isEdge := d.Op == event.Entered || d.Op == event.Left; isEdge && rapid.Bool().Draw(t, "condition") {
		d.Began, d.Repeat, d.Late = rapid.StringN(0, 9, -1).Draw(t, "began"), rapid.IntRange(0, 3).Draw(t, "repeat"), rapid.Bool().Draw(t, "late")
		d.Since = time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, "since"))
	}
	if rapid.Bool().Draw(t, "fed") {
		d.Event = fedEvent(rapid.SampledFrom([]string{`{}`, `null`, `{"x":"` + strings.Repeat("long", 100) + `"}`}).Draw(t, "data"))
	}
	d.Old = drawObject(t)
	if rapid.Bool().Draw(t, "both") {
		d.New = drawObject(t)
	}
	return checkpoint.Pending{
		ID: rapid.Uint64Range(1, 30).Draw(t, "id"), Delta: d, Attempts: rapid.IntRange(0, 3).Draw(t, "attempts"),
		Closed:    rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 2).Draw(t, "closed"),
		Unlimited: rapid.Bool().Draw(t, "unlimited"),
	}
}

func drawRule(t *rapid.T) checkpoint.RuleRecord {
	r := checkpoint.RuleRecord{Kind: rapid.SampledFrom([]byte{0, 'l'}).Draw(t, "kind"), Key: []byte(fmt.Sprintf("k%d", rapid.IntRange(0, 30).Draw(t, "key")))}
	if rapid.IntRange(0, 20).Draw(t, "long") == 0 {
		r.Key = []byte(strings.Repeat("long", 1000))
	}
	if rapid.Bool().Draw(t, "there") {
		r.Value = append([]byte{}, rapid.StringN(0, 20, -1).Draw(t, "value")...)
	}
	return r
}

func drawCut(t *rapid.T) (cut checkpoint.Cut) {
	rarely := func(what string) bool { return rapid.IntRange(0, 9).Draw(t, what) == 0 }
	if rarely("cluster") {
		cut.Cluster = rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "cluster")
	}
	for _, id := range modelWatches {
		if !rapid.Bool().Draw(t, "watch") {
			continue
		}
		cut.Watches = append(cut.Watches, checkpoint.WatchCut{
			ID: id, Applied: rapid.StringN(0, 3, -1).Draw(t, "fed"), Relisting: rarely("relisting"), Reset: rarely("reset"),
			Put:     rapid.SliceOfN(rapid.Custom(drawObject), 0, 40).Draw(t, "put"),
			Deleted: rapid.SliceOfN(rapid.Custom(drawIdentity), 0, 40).Draw(t, "deleted"),
		})
	}
	for _, name := range modelRoutes {
		if !rapid.Bool().Draw(t, "route") {
			continue
		}
		cut.Routes = append(cut.Routes, checkpoint.RouteCut{
			Name:    name,
			Put:     rapid.SliceOfN(rapid.Custom(drawPending), 0, 20).Draw(t, "owed"),
			Removed: rapid.SliceOfN(rapid.Uint64Range(1, 30), 0, 20).Draw(t, "removed"),
			Rules:   rapid.SliceOfN(rapid.Custom(drawRule), 0, 20).Draw(t, "rules"),
		})
	}
	for _, handler := range modelHandlers {
		if rapid.Bool().Draw(t, "handler") {
			cut.Memories = append(cut.Memories, checkpoint.MemoryCut{
				Handler: handler, Put: rapid.SliceOfN(rapid.Custom(drawValue), 0, 20).Draw(t, "values"),
				Removed: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return drawValue(t).Key }), 0, 20).Draw(t, "forgotten"),
			})
		}
	}
	return cut
}

// TestModel writes random cuts and intents. After each the file is closed and reopened, or a copy
// of it is opened, which corresponds to a crash: both must have the content of the model.
func TestModel(t *testing.T) {
	// Guarantee: kv-kept
	rapid.Check(t, func(t *rapid.T) {
		folder, err := os.MkdirTemp("", "checkpoint") //nolint:usetesting // one for each run
		must.Succeed(t, err)
		defer os.RemoveAll(folder)
		path, m := filepath.Join(folder, "state.db"), newModel()
		db := reopenModel(t, nil, path)
		defer func() { db.Close() }()
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				id := rapid.SampledFrom(modelWatches).Draw(t, "watch")
				intents := rapid.SliceOfN(rapid.Custom(drawObject), 1, 20).Draw(t, "intents")
				written := map[string][]*event.Object{id: intents}
				logged, err := db.Log(written)
				must.Succeed(t, err)
				if !logged {
					must.Succeed(t, db.WriteIntents(written))
				}
				m.intend(id, intents)
			} else {
				cut := drawCut(t)
				must.Succeed(t, db.Write(cut))
				m.write(cut)
			}
			copied := filepath.Join(folder, "copy.db")
			copyFile(t, path, copied)
			copyFile(t, path+".journal", copied+".journal")
			crashed := reopenModel(t, nil, copied)
			m.check(t, crashed)
			crashed.Close()
			m.check(t, db)
			if rapid.Bool().Draw(t, "restart") {
				before := backlogs(db)
				db = reopenModel(t, db, path)
				m.check(t, db)
				if after := backlogs(db); after != before {
					t.Fatalf("counted %s, found %s", before, after)
				}
			}
		}
	})
}

func backlogs(db *checkpoint.DB) (text string) {
	for _, name := range modelRoutes {
		d, err := db.Backlog(name)
		text += fmt.Sprintln(name, d, err)
	}
	return text
}

func reopenModel(t *rapid.T, db *checkpoint.DB, path string) *checkpoint.DB {
	if db != nil {
		must.Succeed(t, db.Close())
	}
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	if db.Quarantined() != "" {
		t.Fatal("an intact file was moved away")
	}
	return db
}
