package apply

import (
	"iter"
	"log/slog"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

// emptyStore is a store without objects.
type emptyStore struct{ persist.Cache }

func (emptyStore) All() iter.Seq[*event.Object] { return func(func(*event.Object) bool) {} }

// TestSyncedBeforeReady: the watch of the namespaces is synced when it lets its followers begin. A
// source is announced as synced at the first list of a follower, and only if both are synced.
func TestSyncedBeforeReady(t *testing.T) {
	health := reflector.NewHealth("namespaces", slog.New(slog.DiscardHandler))
	a, s := New(Config{State: persist.New(persist.Config{Store: emptyStore{}}), Health: health}, 0), NewNamespaces()
	seen := make(chan bool)
	go func() {
		<-s.Ready()
		synced, _, _ := health.State()
		seen <- synced
	}()
	if !s.settled(t.Context(), a) {
		t.Fatal("the list was not applied")
	}
	if !<-seen {
		t.Error("a follower begins before the namespaces are synced")
	}
}
