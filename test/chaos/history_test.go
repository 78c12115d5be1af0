package chaos

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/test/routertest"
)

// history makes random changes to the ConfigMaps o-0, o-1, … and records them.
type history struct {
	maps routertest.Objects

	gate sync.RWMutex // held for writing: no changes

	mu       sync.Mutex
	versions map[string][]int // by uid, its resourceVersions without that of its delete
	gone     map[string]bool  // by uid
	n        int
}

func newHistory(maps routertest.Objects) *history {
	return &history{maps: maps, versions: make(map[string][]int), gone: make(map[string]bool)}
}

// writers is the number of goroutines that change objects. Each has objects of its own, so that the
// record of an object is in order.
const writers = 3

// start changes n objects in random order until stop is called, after it has created all.
func (h *history) start(t *testing.T, n int, seed uint64) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var running sync.WaitGroup
	for w := range writers {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		running.Go(func() {
			alive := make(map[string]string) // uid by name
			for i := w; ; i += writers {
				select {
				case <-done:
					return
				default:
				}
				k := i
				if i >= n { // all are created
					k = random.IntN(n/writers)*writers + w
				}
				if err := h.step(t, fmt.Sprintf("o-%d", k), alive, random.IntN(5)); err != nil {
					t.Errorf("the history ended: %v", err)
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(done); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// step creates an object if it does not exist. Else it updates it, or deletes it one time in five.
func (h *history) step(t *testing.T, name string, alive map[string]string, dice int) error {
	t.Helper()
	h.gate.RLock()
	defer h.gate.RUnlock()
	uid, exists := alive[name]
	switch {
	case !exists:
		o, err := h.maps.Create(t.Context(), routertest.ConfigMap(name, "0"), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		alive[name] = string(o.GetUID())
		h.note(alive[name], o.GetResourceVersion())
	case dice == 0:
		if err := h.maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		delete(alive, name)
		h.note(uid, "")
	default:
		patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, rand.Uint64()) //nolint:gosec // no secret
		o, err := h.maps.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return err
		}
		h.note(uid, o.GetResourceVersion())
	}
	return nil
}

func (h *history) note(uid, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	if version == "" {
		h.gone[uid] = true
		return
	}
	h.versions[uid] = append(h.versions[uid], number(version))
}

// count returns the number of changes.
func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// book returns a ledger with the final objects.
func (h *history) book(t *testing.T) *ledger {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	b := newLedger(t)
	for uid, versions := range h.versions {
		if !h.gone[uid] {
			b.alive[uid] = fmt.Sprint(versions[len(versions)-1])
		}
	}
	return b
}

// missing returns the versions and deletes of the history that were not delivered.
func (h *history) missing(delivered map[mark]bool) (missing []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, versions := range h.versions {
		for _, v := range versions {
			if !delivered[mark{uid, v, false}] {
				missing = append(missing, fmt.Sprintf("%s at %d", uid, v))
			}
		}
	}
	ended := make(map[string]bool)
	for m := range delivered {
		if m.end {
			ended[m.uid] = true
		}
	}
	for uid := range h.gone {
		if !ended[uid] {
			missing = append(missing, "the end of "+uid)
		}
	}
	return missing
}
