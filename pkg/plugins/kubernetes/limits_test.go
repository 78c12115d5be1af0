package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// openAt opens a sink with a fake clock.
func (c *cluster) openAt(config string) (plugins.Sink, interface {
	Advance(time.Time)
	Now() time.Time
},
) {
	c.t.Helper()
	fake := clockAt()
	environment := env(c.t, c.RESTConfig())
	environment.Clock = fake
	environment.API.Client.Transport = counting{environment.API.Client.Transport, &c.sent}
	return open(c.t, strings.ReplaceAll(config, "$ns", c.ns), environment), fake
}

// deletes returns n events, each of which deletes a new ConfigMap.
func (c *cluster) deletes(prefix string, n int) (batch []event.Event) {
	c.t.Helper()
	for i := range n {
		batch = append(batch, c.eventOf("v1/configmaps", c.configMap(fmt.Sprintf("%s%d", prefix, i)), `{"delete":{}}`))
	}
	return batch
}

// TestMaxDeletes: a route deletes exactly as many objects as allowed. Then it is paused with an
// error that names it. Another route of the sink continues, and after the period the first may
// continue too.
func TestMaxDeletes(t *testing.T) {
	// Guarantee: kubernetes-limits
	k := start(t)
	sink, clock := k.openAt(all + "maxDeletes: 3/1m\n")
	batch := k.deletes("a", 5)
	errs := sink.Write(t.Context(), batch)
	if len(errs) != 5 || errs[0] != nil || errs[1] != nil || errs[2] != nil || kindOf(errs[3]) != "paused" || kindOf(errs[4]) != "paused" {
		t.Fatal(errs)
	}
	const want = `route "r" has deleted 3 objects within 1m (maxDeletes), and would delete v1/configmaps $ns/a3 next`
	if !strings.Contains(errs[3].Error(), strings.ReplaceAll(want, "$ns", k.ns)) {
		t.Error(errs[3])
	}
	if n := len(k.maps("a")); n != 2 || k.sent.Load() != 3 {
		t.Errorf("%d are left after %d writes", n, k.sent.Load())
	}
	// Retried deletes and other writes are not counted, and each route is counted separately.
	must.Report(t, write(t, sink, batch[0]))
	must.Report(t, write(t, sink, k.eventOf("v1/configmaps", k.configMap("b"), `{"merge":{"data":{"x":"y"}}}`)))
	other := k.deletes("c", 1)
	if other[0].Route = "other"; write(t, sink, other[0]) != nil {
		t.Error("the other route is paused too")
	}
	clock.Advance(clock.Now().Add(59 * time.Second))
	if err := write(t, sink, batch[3]); kindOf(err) != "paused" {
		t.Errorf("a second too early it is %s: %v", kindOf(err), err)
	}
	clock.Advance(clock.Now().Add(time.Second))
	if errs := sink.Write(t.Context(), batch[3:]); errs != nil {
		t.Error(errs)
	}
	if n := len(k.maps("a")); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestDeletesThatWereNone: only executed deletes are counted.
func TestDeletesThatWereNone(t *testing.T) {
	k := start(t)
	sink, _ := k.openAt(all + "maxDeletes: 1/1m\n")
	gone := k.deletes("a", 3)
	for i := range 3 {
		k.remove("v1/configmaps", fmt.Sprintf("a%d", i))
	}
	if errs := sink.Write(t.Context(), append(gone, k.deletes("b", 1)...)); errs != nil {
		t.Error(errs)
	}
	if err := write(t, sink, k.deletes("c", 1)[0]); kindOf(err) != "paused" {
		t.Errorf("it is %s: %v", kindOf(err), err)
	}
	none, _ := k.openAt(all + "maxDeletes: 0/1m\n")
	if err := write(t, none, k.deletes("d", 1)[0]); kindOf(err) != "paused" || len(k.maps("d")) != 1 {
		t.Errorf("with none allowed it is %s: %v", kindOf(err), err)
	}
}

// TestMaxWrites: every write of a route is counted, dry runs included.
func TestMaxWrites(t *testing.T) {
	for _, config := range []string{all, all + "dryRun: true\n"} {
		k := start(t)
		o := k.configMap("a")
		sink, _ := k.openAt(config + "maxWrites: 4/1m\n")
		errs := sink.Write(t.Context(), k.events(o, `{"merge":{"data":{"x":"1"}}}`, `[{"merge":{"data":{"x":"2"}}},{"event":{"reason":"R"}}]`,
			`{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"$ns"}}}`, `{"merge":{"data":{"x":"4"}}}`))
		if len(errs) != 4 || errs[0] != nil || errs[1] != nil || errs[2] != nil || kindOf(errs[3]) != "paused" ||
			!strings.Contains(errs[3].Error(), `route "r" has written 4 times within 1m (maxWrites)`) {
			t.Error(errs)
		}
	}
}

// TestMaxPerObject: a route that writes one object repeatedly is paused. The error names the route
// and the object.
func TestMaxPerObject(t *testing.T) {
	// Guarantee: kubernetes-limits
	k := start(t)
	o, other := k.configMap("a"), k.configMap("b")
	sink, clock := k.openAt(all + "maxPerObject: 2/1m\n")
	batch := k.events(o, `{"merge":{"data":{"x":"1"}}}`, `{"merge":{"data":{"x":"2"}}}`, `{"merge":{"data":{"x":"3"}}}`)
	errs := sink.Write(t.Context(), batch)
	want := fmt.Sprintf(`route "r" has written v1/configmaps %s/a 2 times within 1m (maxPerObject)`, k.ns)
	if len(errs) != 3 || errs[0] != nil || errs[1] != nil || kindOf(errs[2]) != "paused" || !strings.Contains(errs[2].Error(), want) {
		t.Fatal(errs)
	}
	must.Report(t, write(t, sink, k.eventOf("v1/configmaps", other, `{"merge":{"data":{"x":"1"}}}`)))
	clock.Advance(clock.Now().Add(time.Minute))
	if err := write(t, sink, batch[2]); err != nil || field(k.get("v1/configmaps", "a"), "data", "x") != `"3"` {
		t.Error(err)
	}
}
