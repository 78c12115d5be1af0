package router_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestWaitsFor: the status names the sources for whose objects a route waits.
func TestWaitsFor(t *testing.T) {
	config := strings.Replace(fmt.Sprintf(reloadable, "test", kubeconfig(t)), `probes: "127.0.0.1:0"`, `probes: "127.0.0.1:0", api: "127.0.0.1:0"`, 1)
	r := startReloading(t, config+`sources: {pods: {resource: v1/pods}, nodes: {resource: v1/nodes}}
sinks: {one: {fake: {}}}
routes:
  - {name: a, from: nodes, to: one}
  - {name: b, from: nodes, filter: list("pods").size() > 0, to: one}
`)
	_, status := get(t, "http://"+regexp.MustCompile(`for=api address=(\S+)`).FindStringSubmatch(r.log.String())[1]+"/api/v1/status")
	for _, want := range []string{`"waitsFor":["pods"]`, "it waits for all objects of the sources that it looks up: pods"} {
		if strings.Count(status, want) != 1 {
			t.Errorf("the status lacks %s:\n%s", want, status)
		}
	}
	if strings.Contains(status, "routes/a") {
		t.Error(status)
	}
}
