package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestTap shows that a tap of a running router has a line for each delta with the condition that
// was not met, and no content of objects. A tap blocks neither deliveries nor a stop.
func TestTap(t *testing.T) {
	// Guarantee: tap
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes:
  - {name: ones, from: maps, filter: 'op == "added" && object.data.value == "hunter1"', to: out}
  - {name: lasts, from: maps, when: object.data.value == "hunter1", for: 1h, to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	if out, code := routertest.Control(t, file, "tap", "-route", "one"); code != 1 || !strings.Contains(out, `there is no route "one"; did you mean "ones"?`) {
		t.Errorf("exit code %d, %s", code, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, ended := make(chan api.Tapped, 100), make(chan error, 1)
	go func() {
		ended <- api.NewClient("unix:"+filepath.Join(filepath.Dir(file), "api.sock")).Tap(ctx, api.TapQuery{Rejected: true}, func(l api.Tapped) error {
			lines <- l
			return nil
		})
	}()
	n := 0
	var first api.Tapped
	routertest.Poll(t, "the tap", func() bool { // deltas before the tap are not shown
		n++
		m.Make(routertest.ConfigMap(fmt.Sprintf("m%d", n), "hunter2"))
		select {
		case first = <-lines:
			return true
		default:
			return false
		}
	})
	if first.Verdict != "no match" || first.Why != `object.data.value == "hunter1"` || !strings.Contains(first.At, "config.yaml:") || !strings.HasPrefix(first.Key, ns+"/m") {
		t.Errorf("got %+v", first)
	}
	m.Make(routertest.ConfigMap("one", "hunter1"))
	for l := range lines {
		if l.Key == ns+"/one" && l.Route == "lasts" {
			if l.Verdict != "holds" || l.State != "pending" || l.Since.Before(l.Time.Add(-time.Second)) || !l.Due.Equal(l.Since.Add(time.Hour)) {
				t.Errorf("got %+v", l)
			}
			break
		}
		if l.Key == ns+"/one" {
			if l.Verdict != "match" || l.Op != "added" || l.Route != "ones" || l.UID == "" || l.ResourceVersion == "" || l.State != "" {
				t.Errorf("got %+v", l)
			}
			continue
		}
		if strings.Contains(fmt.Sprint(l), "hunter2") {
			t.Errorf("got %+v", l)
		}
	}
	r.Expect(t, "ones added "+ns+"/one")
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := <-ended; err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the router closed the tap") {
		t.Errorf("the tap ended with %v", err)
	}
}
