package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// history makes random changes to the ConfigMaps o-0, o-1, … and records them. Some changes of
// several objects are one transaction, so that their events have one resourceVersion.
type history struct {
	maps     routertest.Objects
	together func(ctx context.Context, edits []sandboxtest.Edit) (version string, err error)

	gate sync.RWMutex // held for writing: no changes

	mu       sync.Mutex
	versions map[string][]int // by uid, its resourceVersions without that of its delete
	gone     map[string]bool  // by uid
	n        int
	groups   int // of changes with one resourceVersion
}

func newHistory(t *testing.T, s *sandboxtest.Sandbox, ns string) *history {
	t.Helper()
	together := func(ctx context.Context, edits []sandboxtest.Edit) (string, error) {
		return s.Together(ctx, "/registry/configmaps/"+ns+"/", edits)
	}
	return &history{
		maps: routertest.Use(t, s, routertest.ConfigMaps, ns), together: together,
		versions: make(map[string][]int), gone: make(map[string]bool),
	}
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
				step := func() error { return h.step(t, fmt.Sprintf("o-%d", k), alive, random.IntN(5)) }
				if random.IntN(groupEvery) == 0 {
					step = func() error { return h.group(t, alive, random) }
				}
				if err := step(); err != nil {
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

// groupEvery is the number of steps of a writer of which one changes a group.
const groupEvery = 25

// value returns a random value of a ConfigMap. All have one length, so that a stored one can be
// replaced.
func value() string { return fmt.Sprintf("%020d", rand.Uint64()) } //nolint:gosec // no secret

var values = regexp.MustCompile("[0-9]{20}") //nolint:gochecknoglobals // a constant

// group changes at most 30 existing objects at one resourceVersion: it updates them, or deletes
// them one time in three.
func (h *history) group(t *testing.T, alive map[string]string, random *rand.Rand) error {
	t.Helper()
	h.gate.RLock()
	defer h.gate.RUnlock()
	names := slices.Sorted(maps.Keys(alive))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:min(len(names), 2+random.IntN(29))]
	var edits []sandboxtest.Edit
	ends := make(map[string]bool)
	for _, name := range names {
		ends[name] = random.IntN(3) == 0
		edits = append(edits, sandboxtest.Edit{Name: name, Change: func(stored []byte) []byte {
			if ends[name] {
				return nil
			}
			return values.ReplaceAll(stored, []byte(value()))
		}})
	}
	if len(names) < 2 {
		return nil
	}
	version, err := h.together(t.Context(), edits)
	if err != nil {
		return err
	}
	for _, name := range names {
		if uid := alive[name]; ends[name] {
			delete(alive, name)
			h.note(uid, "")
		} else {
			h.note(uid, version)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.groups++
	return nil
}

// step creates an object if it does not exist. Else it updates it, or deletes it one time in five.
func (h *history) step(t *testing.T, name string, alive map[string]string, dice int) error {
	t.Helper()
	h.gate.RLock()
	defer h.gate.RUnlock()
	uid, exists := alive[name]
	switch {
	case !exists:
		o, err := h.maps.Create(t.Context(), routertest.ConfigMap(name, value()), metav1.CreateOptions{})
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
		patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, value())
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
