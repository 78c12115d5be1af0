package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestAllKeysChange gives the API server another certificate authority, so that it accepts no
// earlier credential. The router must read the kubeconfig again and continue.
func TestAllKeysChange(t *testing.T) {
	// Guarantee: credentials-change
	t.Parallel()
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("before", "1"))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.Ready(t)
	s.RotateKeys(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("after", "1"))
	maps.Change("before", `{"data":{"value":"2"}}`)
	// The router asks again after up to 45 seconds.
	tick, enough := time.NewTicker(100*time.Millisecond), time.After(2*routertest.Patience)
	defer tick.Stop()
	for waits := true; waits && len(r.Events()) < 2; {
		select {
		case <-tick.C:
		case <-enough:
			waits = false
		}
	}
	r.Expect(t, "all added "+ns+"/after", "all updated "+ns+"/before")
}
