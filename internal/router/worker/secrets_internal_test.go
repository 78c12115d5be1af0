package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestSecretsOfWorkers: a worker does not miss the keys of the members, which it must not have.
func TestSecretsOfWorkers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(`
version: 1
state: {dir: state}
fleet:
  name: f
  nats: {servers: [nats://localhost:4222]}
  keys:
    members: {file: absent/members}
    workers: {file: absent/workers}
    accept: {members: {file: absent/former}}
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: pods, to: out}]
`), 0o600))
	cfg, problems := config.Load(path, config.Policy{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	all, left := cfg.MissingSecrets(), secretChecks(cfg)
	if len(all) != 3 || len(left) != 1 || !strings.HasPrefix(left[0].Message, "keys.workers has no value here") {
		t.Errorf("of %v, a worker misses %v", all, left)
	}
	for _, p := range all {
		if isMembersKey(p.Path) == strings.HasSuffix(p.Path, "workers") {
			t.Error(p.Path)
		}
	}
}
