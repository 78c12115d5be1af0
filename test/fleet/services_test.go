package fleet_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// servicesConfig has a route whose handler counts the changes of an object in its kv, looks the
// object up, and gets what the leader has looked up, and a route that gives up soon.
const servicesConfig = `sources: {maps: {resource: v1/configmaps, namespaces: %s, indexes: {byName: object.metadata.name}}}
define: {plain: object.metadata.name.startsWith("o-")}
handlers: {counter: {process: {command: %s, sha256: %x, allow: {kv: true, lookup: [maps]}}}}
sinks:
  counted: {webhook: {url: %q}}
  given: {webhook: {url: %q}}
routes:
  - name: counted
    from: maps
    filter: plain
    deliver: every
    with: {named: 'lookup("maps.byName", object.metadata.name).map(m, m.metadata.name)'}
    handler: counter
    to: counted
    retry: {attempts: 1}
    workers: {partitions: 4}
  - {name: given, from: maps, filter: plain, deliver: every, to: given, maxAge: 1s, retry: {backoff: 1ms, max: 100ms}, workers: {partitions: 2}}
`

// services is a fleet with workers for the routes of servicesConfig.
type services struct {
	*pair

	changes map[string]int // by object
}

func newServices(t *testing.T) *services {
	t.Helper()
	s, ns := sandboxtest.StartNamespace(t)
	dir := t.TempDir()
	program := built.Native(t, filepath.Join("testdata", "counter"))
	text, err := os.ReadFile(program)
	must.Succeed(t, err)
	running := &pair{t: t, nats: natstest.Start(t, natstest.Config{}), receiver: fleet.NewReceiver(), maps: s.Dynamic().Resource(routertest.ConfigMaps).Namespace(ns)}
	f := &services{pair: running, changes: map[string]int{}}
	t.Cleanup(f.receiver.Close)
	f.fleet, err = fleet.New(fleet.Options{
		Router: routertest.Command().Path, Dir: dir, Name: "test", Namespace: ns, Members: 2, Workers: 2, NATS: f.nats.URLs(),
		Kubeconfig: s.Kubeconfig(), Receiver: f.receiver.Addr(), Args: []string{"-plugin-dir", filepath.Dir(program)},
	}, fmt.Sprintf(servicesConfig, ns, program, sha256.Sum256(text), fleet.ReceiverURL+"counted", fleet.ReceiverURL+"given"))
	must.Succeed(t, err)
	t.Cleanup(func() {
		f.fleet.Close()
		if t.Failed() {
			for _, n := range f.fleet.Nodes() {
				t.Log(n.Tail())
			}
		}
	})
	must.Succeed(t, f.fleet.Start())
	f.roles(f.fleet.Members...)
	return f
}

// change changes some objects.
func (f *services) change(names ...string) {
	f.t.Helper()
	for _, name := range names {
		f.changes[name]++
		var err error
		if n := f.changes[name]; n == 1 {
			_, err = f.maps.Create(f.t.Context(), routertest.ConfigMap(name, "1"), metav1.CreateOptions{})
		} else {
			_, err = f.maps.Patch(f.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":"%d"}}`, n), metav1.PatchOptions{})
		}
		must.Succeed(f.t, err)
	}
}

// counted waits until the handler has counted all changes of all objects, and returns the number of
// changes that it has counted more than once.
func (f *services) counted() (again int) {
	f.t.Helper()
	f.wait("the counts of all changes", func() error {
		versions, highest := map[string]map[string]bool{}, map[string]int{}
		for _, d := range f.receiver.Of("counted") {
			if !strings.HasPrefix(d.By, "worker-") {
				f.t.Errorf("%s was delivered by %s", d.ID, d.By)
			}
			n, name := 0, ""
			if _, err := fmt.Sscanf(strings.Replace(d.Op, ".", " ", 1), "%d %s", &n, &name); err != nil {
				return fmt.Errorf("an event of type %q: %w", d.Op, err)
			}
			if versions[name] == nil {
				versions[name] = map[string]bool{}
			}
			versions[name][d.Version], highest[name] = true, max(highest[name], n)
		}
		again = 0
		for name, n := range f.changes {
			if len(versions[name]) < n || highest[name] < n {
				return fmt.Errorf("%d of %d changes of %s, counted %d", len(versions[name]), n, name, highest[name])
			}
			again += highest[name] - n
		}
		return nil
	})
	return again
}

// dlq runs a command about dead letters at the leader.
func (f *services) dlq(args ...string) (string, error) {
	leader, _ := f.roles(f.fleet.Members...)
	return leader.Control(append([]string{"dlq"}, args...)...)
}

// TestServices shows that handlers on workers keep their kv, look objects up, and get the values of
// with, while workers and the leader end: each change is counted, and after a clean end exactly
// once. The dead letters of workers are listed, redelivered and dropped at the leader.
func TestServices(t *testing.T) {
	// Guarantee: workers-kv, workers-lookup, workers-letters, route-with
	t.Parallel()
	f := newServices(t)
	names := []string{"o-a", "o-b", "o-c", "o-d", "o-e", "o-f"}
	for range 5 {
		f.change(names...)
	}
	if again := f.counted(); again != 0 {
		t.Errorf("%d changes are counted twice", again)
	}
	must.Succeed(t, f.fleet.Workers[0].Terminate(patience))
	for range 5 {
		f.change(names...)
	}
	if again := f.counted(); again != 0 {
		t.Errorf("%d changes are counted twice after a clean end of a worker", again)
	}
	must.Succeed(t, f.fleet.Workers[0].Launch())
	leader, _ := f.roles(f.fleet.Members...)
	f.fleet.Workers[1].Kill()
	leader.Kill()
	for range 5 {
		f.change(names...)
	}
	must.Succeed(t, errors.Join(f.fleet.Workers[1].Launch(), leader.Launch()))
	t.Logf("%d changes are counted twice after the death of a worker and of the leader", f.counted())
	f.roles(f.fleet.Members...)

	f.letters(names)
}

// letters lets the route given fail for a change of each object.
func (f *services) letters(names []string) {
	t := f.t
	t.Helper()
	f.wait("all deliveries", func() error {
		_, err := f.dlq("list", "-route", "given") // those that were older than 1 s while processes were down
		return err
	})
	_, _ = f.dlq("drop", "-route", "given")
	f.receiver.Down("given", true)
	f.change(names...)
	f.wait("the dead letters", func() error {
		list, err := f.dlq("list", "-route", "given")
		for _, name := range names {
			if err == nil && !strings.Contains(list, name) {
				err = fmt.Errorf("%s has none: %s", name, list)
			}
		}
		return err
	})
	f.receiver.Clear()
	f.receiver.Down("given", false)
	f.wait("the redeliveries", func() error {
		// Again and again: a letter from before the drop may come late and be in the place of one
		// from this change, and a redelivered delta may be too old on a busy machine.
		out, err := f.dlq("retry", "-route", "given")
		delivered := make(map[string]bool)
		for _, d := range f.receiver.Of("given") {
			delivered[d.UID] = true
		}
		if err == nil && len(delivered) < len(names) {
			err = fmt.Errorf("%d of %d: %s", len(delivered), len(names), out)
		}
		return err
	})
	f.wait("the end of the dead letters", func() error {
		list, err := f.dlq("list", "-route", "given")
		if err == nil && strings.Contains(list, "o-") {
			err = fmt.Errorf("%s", list)
		}
		return err
	})
	for _, d := range f.receiver.Of("given") {
		if !strings.HasPrefix(d.By, "worker-") {
			t.Errorf("%s was redelivered by %s", d.ID, d.By)
		}
	}
}
