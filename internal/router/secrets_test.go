package router_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestMissingSecret: a sink whose secret has no value is named in the log at the start and after a
// reload, and is a reason in /readyz until the value is there. The router is not kept from
// readiness.
func TestMissingSecret(t *testing.T) {
	const text = reloadable + `sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {token: {file: %s}}}, two: {fake: {token: {file: %s}}}}
routes: [{name: a, from: pods, to: [one, two]}]
`
	folder, kube := t.TempDir(), kubeconfig(t)
	first, second := filepath.Join(folder, "first"), filepath.Join(folder, "second")
	with := func(one, two string) string {
		return strings.Replace(fmt.Sprintf(text, "test", kube, one, two), `probes: "127.0.0.1:0"`, `probes: "127.0.0.1:0", api: "127.0.0.1:0"`, 1)
	}
	must.Succeed(t, os.WriteFile(second, []byte("value"), 0o600))
	r := startReloadingWith(t, with(first, second), &journal{secrets: true})
	api := "http://" + regexp.MustCompile(`for=api address=(\S+)`).FindStringSubmatch(r.log.String())[1]
	show := func() (ready, status string) {
		_, ready = get(t, r.probes+"/readyz")
		_, status = get(t, api+"/api/v1/status")
		return ready, status
	}
	r.logs("sinks.one.fake.token: has no value here: secret file " + first + " cannot be read")
	if ready, status := show(); !strings.Contains(ready, "[-]sinks/one: not ok") || strings.Contains(ready, "sinks/two") || strings.Contains(ready, "waiting for sinks") ||
		!strings.Contains(status, "fake.token has no value here: secret file "+first+" cannot be read") {
		t.Errorf("got %s\n%s", ready, status)
	}
	if _, metrics := get(t, r.probes+"/metrics"); !strings.Contains(metrics, "deltarouter_config_missing_secrets 1\n") {
		t.Error("the metric does not count the missing secret")
	}
	must.Succeed(t, os.Rename(second, first))
	if ready, _ := show(); strings.Contains(ready, "sinks/one") || !strings.Contains(ready, "[-]sinks/two: not ok") {
		t.Errorf("got %s", ready)
	}
	r.change(with(second, first), true, "sinks.one.fake.token: has no value here: secret file "+second)
	if strings.Contains(r.log.String(), first) {
		t.Errorf("the log names what is there:\n%s", r.log)
	}
}

// checkToken reads a configuration with a secret.
func checkToken(node config.Node) config.Problems {
	var of struct {
		Token config.Secret `yaml:"token"`
	}
	return node.Decode(&of)
}
