package kubernetes

import (
	"fmt"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// notes is a plugins.KV.
type notes map[string]plugins.KVWrite

func (n notes) Get(key string) ([]byte, bool) {
	w, ok := n[key]
	return w.Value, ok
}

func (notes) Size() int64 { return 0 }

func (n notes) Commit(writes []plugins.KVWrite, _ int64) error {
	for _, w := range writes {
		if n[w.Key] = w; w.Delete {
			delete(n, w.Key)
		}
	}
	return nil
}

// TestDeletesAreRemembered: deletes of a route count after a restart too, a retry counts once, and
// after a resume the route begins at zero.
func TestDeletesAreRemembered(t *testing.T) {
	// Guarantee: kubernetes-limits-kept
	memory, now := notes{}, time.Unix(1_800_000_000, 0)
	var l *limits
	restart := func() { l = newLimits(rate{3, time.Hour}, rate{}, rate{}, memory) }
	deletes := func(route, id string) error {
		_, err := l.take(now, route, id, &operation{verb: verbDelete, target: target{version: "v1", resource: "things", name: id}})
		return err
	}
	restart()
	for i := range 3 {
		now = now.Add(time.Minute)
		must.Succeed(t, deletes("r", fmt.Sprint(i)))
	}
	restart()
	if deletes("r", "3") == nil {
		t.Error("a fourth object is deleted after a restart")
	}
	if err := deletes("r", "2"); err != nil {
		t.Error("what was deleted before counts again:", err)
	}
	must.Report(t, deletes("other", "3"))
	if w := memory["maxDeletes\x00r"]; !w.Expires.Equal(now.Add(time.Hour)) || len(w.Value) != 48 {
		t.Errorf("remembered is %+v", w)
	}
	l.giveBack("r", "2", &operation{verb: verbDelete})
	restart()
	if err := deletes("r", "3"); err != nil {
		t.Error("what was not done counts:", err)
	}
	restart()
	now = now.Add(58 * time.Minute) // the first has expired
	if err := deletes("r", "4"); err != nil || deletes("r", "5") == nil {
		t.Error("the times are not remembered:", err)
	}
	restart()
	l.resume("r")
	for i := range 3 {
		must.Report(t, deletes("r", fmt.Sprint("again", i)))
	}
	if deletes("r", "6") == nil {
		t.Error("nothing is counted any more")
	}
	now = now.Add(-24 * time.Hour) // the wall clock was set back
	restart()
	if deletes("r", "7") == nil {
		t.Error("all is forgotten")
	}
	now = now.Add(time.Hour)
	must.Report(t, deletes("r", "7"))
}
