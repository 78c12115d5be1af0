package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// returning is a collector; objects return during its cuts, after their instant.
type returning struct {
	cut  Cut
	back func()
}

func (r *returning) Collect(at func()) Cut {
	at()
	if r.back != nil {
		r.back()
	}
	cut := r.cut
	r.cut, r.back = Cut{}, nil
	return cut
}

func (*returning) Done(error) {}

// failingStore fails a number of times.
type failingStore struct {
	*DB

	fails int
}

func (s *failingStore) Commit(cut *Cut, intents map[string][]*event.Object) error {
	if s.fails--; s.fails >= 0 {
		return errors.New("no space")
	}
	return s.DB.Commit(cut, intents)
}

// An object leaves the selector of its watch and returns with the same uid while a cut with its
// removal is collected. That cut does not end the intent of its return, whether or not writing it
// fails at first; the next cut with a removal of the object ends it.
func TestReturnDuringACut(t *testing.T) {
	for _, fails := range []int{0, 2} {
		t.Run(fmt.Sprint(fails, " failures"), func(t *testing.T) {
			db, err := Open(Config{Path: filepath.Join(t.TempDir(), "state.db")})
			must.Succeed(t, err)
			defer db.Close()
			state := func(version int) *event.Object {
				r := &event.Resource{}
				r.Resource = "pods"
				o, err := event.ParseObject(r, fmt.Sprintf(`{"metadata":{"name":"a","uid":"u","resourceVersion":"%d"}}`, version))
				must.Succeed(t, err)
				return o
			}
			id := Identity{Key: state(1).Key(), UID: "u"}
			gone := Cut{Watches: []WatchCut{{ID: "w", Applied: "2", Deleted: []Identity{{Key: id.Key}, id}}}}
			c := &returning{cut: gone}
			store := &failingStore{db, fails}
			w := newWriter(store, c, nil)
			w.Gate("w", state(1))
			var gate <-chan struct{}
			c.back = func() { gate = w.Gate("w", state(3)) }
			for _, ok := w.step(true); !ok; _, ok = w.step(false) {
				if open(gate) {
					t.Error("the gate is open before the intent is on disk")
				}
			}
			intents := func() string {
				t.Helper()
				saved, err := db.LoadWatch("w")
				must.Succeed(t, err)
				text := ""
				for _, i := range saved.Intents {
					text += i.JSON
				}
				return text
			}
			if got := intents(); got != string(state(3).JSON()) || !open(gate) {
				t.Errorf("intents %q", got)
			}
			c.cut = gone
			if _, ok := w.step(true); !ok || intents() != "" {
				t.Errorf("once it is gone: %q", intents())
			}
		})
	}
}
