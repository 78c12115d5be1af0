package checkpoint_test

import (
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
)

// TestIntentsInOrder: intents come back in the order in which they were written, whatever their uids.
func TestIntentsInOrder(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	var want []checkpoint.Identity
	for _, uids := range []string{"gb", "e", "fca"} {
		var ids []checkpoint.Identity
		for _, uid := range uids {
			ids = append(ids, identity("one", string(uid)))
		}
		if err := db.WriteIntents(map[string][]checkpoint.Identity{"w": ids}); err != nil {
			t.Fatal(err)
		}
		want = append(want, ids...)
		db = reopen(t, db, path)
	}
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Deleted: want[1:2]}}})
	want = append(want[:1], want[2:]...)
	if w, err := db.LoadWatch("w"); err != nil || !slices.Equal(w.Intents, want) {
		t.Errorf("got %v, %v, want %v", w.Intents, err, want)
	}
}
