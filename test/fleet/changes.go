package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/fleet/ledger"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// Changes makes random changes to ConfigMaps and records them in a history. Each of its writers has
// objects of its own, with its label `team`, so that the changes of a team have one order.
// Some changes of a team have one resourceVersion.
type Changes struct {
	Maps    dynamic.ResourceInterface
	History *ledger.History
	Prefix  string        // of the names of the objects
	Seed    uint64        // of the choice of changes
	Writers int           // goroutines
	Pace    time.Duration // between two changes of a writer
	Most    int           // changes of a writer at this pace; the later ones are slower; 0: no limit
	// Together edits stored objects at one resourceVersion, which it returns, as the sandbox can
	// do; nil: each change has its own.
	Together func(ctx context.Context, edits []sandboxtest.Edit) (version string, err error)

	mu    sync.Mutex
	alive map[string]string // uid by name
	err   error
	gate  sync.RWMutex // held for writing: no change begins
}

const (
	objects = 6  // of a writer
	slower  = 10 // times, after Changes.Most

	groupEvery = 20 // steps of a writer, of which one changes a group
)

// value returns a value of a ConfigMap. All have one length, so that a stored one can be replaced.
func value(n int) string { return fmt.Sprintf("%020d", n) }

var values = regexp.MustCompile("[0-9]{20}") //nolint:gochecknoglobals // a constant

// group changes all existing objects of a team at one resourceVersion: it updates them, and deletes
// the named one.
func (c *Changes) group(ctx context.Context, name, team string, _ int) error {
	var edits []sandboxtest.Edit
	c.mu.Lock()
	alive := maps.Clone(c.alive)
	c.mu.Unlock()
	prefix := strings.TrimRight(name, "0123456789")
	maps.DeleteFunc(alive, func(name, _ string) bool { return !strings.HasPrefix(name, prefix) })
	to := []byte(value(c.History.Len()))
	for _, each := range slices.Sorted(maps.Keys(alive)) {
		edits = append(edits, sandboxtest.Edit{Name: each, Change: func(stored []byte) []byte {
			if each == name {
				return nil
			}
			return values.ReplaceAll(stored, to)
		}})
	}
	if len(edits) == 0 {
		return nil
	}
	version, err := c.Together(ctx, edits)
	if err != nil {
		return err
	}
	for _, e := range edits {
		if e.Name == name {
			c.ended(name, alive[name])
		} else {
			c.History.Changed(alive[e.Name], e.Name, team, version)
		}
	}
	return nil
}

// Start makes changes until stop is called, which returns the first error.
func (c *Changes) Start(ctx context.Context) (stop func() error) {
	c.alive = map[string]string{}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for w := range c.Writers {
		running.Go(func() { c.write(ctx, w) })
	}
	return func() error {
		cancel()
		running.Wait()
		return c.err
	}
}

func (c *Changes) write(ctx context.Context, writer int) {
	random := rand.New(rand.NewPCG(c.Seed, uint64(writer)))
	pace := time.NewTicker(c.Pace)
	defer pace.Stop()
	for i := 0; ; i++ {
		if i == c.Most && i > 0 {
			pace.Reset(slower * c.Pace)
		}
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		// A change that has begun is finished, because the history must have it.
		step := c.step
		if c.Together != nil && random.IntN(groupEvery) == 0 {
			step = c.group
		}
		c.gate.RLock()
		err := c.any(context.WithoutCancel(ctx), step, writer, random)
		c.gate.RUnlock()
		if err != nil {
			c.mu.Lock()
			c.err = errors.Join(c.err, fmt.Errorf("the changes ended: %w", err))
			c.mu.Unlock()
			return
		}
	}
}

// any makes a change of an object of a writer.
func (c *Changes) any(ctx context.Context, step func(ctx context.Context, name, team string, dice int) error, writer int, random *rand.Rand) error {
	return step(ctx, fmt.Sprintf("%s-%d-%d", c.Prefix, writer, random.IntN(objects)), fmt.Sprintf("team-%d", writer), random.IntN(8))
}

// Hold lets the writers make no changes while do runs, between Start and stop. do may call the
// function that it gets, which makes one change of each writer.
func (c *Changes) Hold(ctx context.Context, do func(each func() error)) {
	c.gate.Lock()
	defer c.gate.Unlock()
	random := rand.New(rand.NewPCG(c.Seed, uint64(c.Writers)))
	do(func() (err error) {
		for w := range c.Writers {
			err = errors.Join(err, c.any(ctx, c.step, w, random))
		}
		return err
	})
}

// step creates an object if it does not exist. Else it updates it, or deletes it one time in eight.
func (c *Changes) step(ctx context.Context, name, team string, dice int) error {
	c.mu.Lock()
	uid := c.alive[name]
	c.mu.Unlock()
	switch {
	case uid == "":
		o, err := c.Maps.Create(ctx, routertest.ConfigMap(name, value(0), "team="+team), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		uid = string(o.GetUID())
		c.History.Changed(uid, name, team, o.GetResourceVersion())
	case dice == 0:
		return c.remove(ctx, name, uid)
	default:
		patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, value(c.History.Len()))
		o, err := c.Maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return err
		}
		c.History.Changed(uid, name, team, o.GetResourceVersion())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive[name] = uid
	return nil
}

func (c *Changes) remove(ctx context.Context, name, uid string) error {
	if err := c.Maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	c.ended(name, uid)
	return nil
}

// ended records the delete of an object.
func (c *Changes) ended(name, uid string) {
	c.History.Deleted(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.alive, name)
}

// Finish deletes the remaining objects, after stop.
func (c *Changes) Finish(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, uid := range c.alive {
		if err := c.Maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		c.History.Deleted(uid)
	}
	return nil
}
