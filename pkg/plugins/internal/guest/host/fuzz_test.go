package host

import (
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// FuzzLookup: any text is rejected, or requests one granted thing.
func FuzzLookup(f *testing.F) {
	for _, seed := range []string{
		`{"index":"pods.byNode","key":"n1"}`, `{"list":"pods","count":true}`, `{"get":"pods","namespace":"a","name":"b"}`, `{"index":"secrets.x"}`, `{"list":"pods.byNode"}`,
	} {
		f.Add(seed)
	}
	full := tank{fuel: &global{}, stack: &global{}, rest: &global{}}
	full.fill(1 << 60)
	h := &Host{lookup: onlyPods{f}, granted: map[Index]bool{{"pods", "byNode"}: true, {"nodes", ""}: true}}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseLookup(text)
		if err != nil {
			return
		}
		_, _ = r.answer(t.Context(), &Scope{tank: full, host: h})
	})
}

// global is a global of a fake guest.
type global struct {
	api.MutableGlobal

	value uint64
}

func (g *global) Get() uint64  { return g.value }
func (g *global) Set(v uint64) { g.value = v }

// onlyPods fails for all look-ups except pods.byNode and nodes.
type onlyPods struct{ t testing.TB }

func (o onlyPods) check(source, index string) {
	if source != "nodes" && (source != "pods" || index != "byNode") {
		o.t.Errorf("%s.%s was looked up", source, index)
	}
}

func (o onlyPods) Lookup(source, index, _ string) []*event.Object {
	o.check(source, index)
	return nil
}

func (o onlyPods) Count(source, index, _ string) int {
	o.check(source, index)
	return 0
}

func (o onlyPods) Get(source, _, _ string) *event.Object {
	o.check(source, "")
	return nil
}
