package main

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	helm3loader "helm.sh/helm/v3/pkg/chart/loader"
	helm3util "helm.sh/helm/v3/pkg/chartutil"
	helm3engine "helm.sh/helm/v3/pkg/engine"
	helm3lint "helm.sh/helm/v3/pkg/lint"
	helm3support "helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the goldens")

// namespace is the namespace of the goldens. test/e2e replaces it, and applies them to an API
// server.
const namespace = "chart-release"

// sets returns the names of the sets of values.
func sets(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".values.yaml"))
	}
	return names
}

// valuesOf reads a set of values.
func valuesOf(t *testing.T, name string) map[string]any {
	t.Helper()
	values, err := readValues(filepath.Join("testdata", name+".values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// TestGoldens compares the manifests of each set of values, rendered by Helm 4, with a file.
func TestGoldens(t *testing.T) {
	for _, name := range sets(t) {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(namespace, valuesOf(t, name))
			if err != nil {
				t.Fatal(err)
			}
			golden, got := filepath.Join("testdata", name+".yaml"), joined(rendered)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("%s differs (%v): read the difference after go test -update. Got\n%s", golden, err, got)
			}
		})
	}
}

// TestHelm3 shows that Helm 3 renders the same manifests and notes.
func TestHelm3(t *testing.T) {
	for _, name := range sets(t) {
		t.Run(name, func(t *testing.T) {
			want, err := render(namespace, valuesOf(t, name))
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := helm3loader.LoadDir(chart)
			if err != nil {
				t.Fatal(err)
			}
			options := helm3util.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
			top, err := helm3util.ToRenderValues(loaded, valuesOf(t, name), options, helm3util.DefaultCapabilities)
			if err != nil {
				t.Fatal(err)
			}
			got, err := helm3engine.Render(loaded, top)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Errorf("Helm 3 renders %d templates, Helm 4 %d", len(got), len(want))
			}
			for file := range want {
				if got[file] != want[file] {
					t.Errorf("%s: Helm 3 renders\n%s\nHelm 4\n%s", file, got[file], want[file])
				}
			}
		})
	}
}

// TestLint shows that helm lint of both versions has no warning.
func TestLint(t *testing.T) {
	for _, name := range sets(t) {
		t.Run(name, func(t *testing.T) {
			for _, m := range lint.RunAll(chart, valuesOf(t, name), namespace).Messages {
				if m.Severity >= support.WarningSev {
					t.Error("Helm 4:", m)
				}
			}
			for _, m := range helm3lint.All(chart, valuesOf(t, name), namespace, true).Messages {
				if m.Severity >= helm3support.WarningSev {
					t.Error("Helm 3:", m)
				}
			}
		})
	}
}

// TestMistakes shows that mistakes in the values are named before anything is installed.
func TestMistakes(t *testing.T) {
	const config = "config: {sources: {p: {resource: v1/pods}}, sinks: {o: {stdout: {}}}, routes: [{name: r, from: p, to: o}]}\n"
	for _, tt := range []struct{ name, values, want string }{
		{"no configuration", "{}", "set config to the configuration of the router"},
		{"two configurations", config + "existingConfigMap: c", "set either config or existingConfigMap"},
		{"unknown value", config + "replicas: 2", "additional properties 'replicas' not allowed"},
		{"unknown nested value", config + "state: {sise: 1Gi}", "additional properties 'sise' not allowed"},
		{"type", config + "drainTimeoutSeconds: soon", "/drainTimeoutSeconds"},
		{"enumeration", config + "image: {pullPolicy: sometimes}", "/image/pullPolicy"},
		{"section missing", "config: {sources: {}, sinks: {}}", "missing property 'routes'"},
		{"key of the configuration", strings.Replace(config, "resource", "resourse", 1), "/config/sources/p"},
		{"another port of the API", "access: {enabled: true, tlsSecret: a}\n" + strings.Replace(config, "{", `{listen: {api: ":80"}, `, 1), "leave config.listen.api out"},
		{"access without a certificate", "access: {enabled: true}\n" + config, "set access.tlsSecret to the name of a Secret"},
		{"a fleet of values only", config + "fleet: {enabled: true}", "config.fleet and fleet.enabled belong together"},
		{"a fleet of config only", strings.Replace(config, "{", "{fleet: {name: f, nats: {servers: [nats://n:4222]}}, ", 1), "config.fleet and fleet.enabled belong together"},
		{"workers without a fleet", config + "workers: {enabled: true}", "workers need a fleet"},
		{"a key without its Secret", config + "fleet: {credsKey: a}", "set fleet.natsSecret to the name of the Secret"},
		{"a lock beside an existing ConfigMap", "existingConfigMap: c\nmodules: {lock: a}", "add the key plugins.lock to existingConfigMap"},
		{"Prometheus behind the network policy", config + "serviceMonitor: {enabled: true}", "name its namespace in networkPolicy.from"},
		{"users behind the network policy", config + "access: {enabled: true, tlsSecret: a}", "name their namespaces in networkPolicy.from"},
		{"another port", strings.Replace(config, "{", `{listen: {probes: ":80"}, `, 1), "leave config.listen.probes out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := map[string]any{}
			if err := yaml.Unmarshal([]byte(tt.values), &values); err != nil {
				t.Fatal(err)
			}
			if _, err := render(namespace, values); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// TestRestarts shows which changes of the configuration replace the pod: those that a reload cannot
// apply.
func TestRestarts(t *testing.T) {
	statefulSet := func(change func(config map[string]any)) string {
		values := valuesOf(t, "minimal")
		change(values["config"].(map[string]any))
		rendered, err := render(namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		return rendered["deltarouter/templates/statefulset.yaml"]
	}
	before := statefulSet(func(map[string]any) {})
	if after := statefulSet(func(c map[string]any) { c["define"] = map[string]any{"a": "true"} }); after != before {
		t.Error("a change of define replaces the pod")
	}
	if after := statefulSet(func(c map[string]any) { c["cluster"] = map[string]any{"name": "b"} }); after == before {
		t.Error("a change of cluster does not replace the pod")
	}
}

// TestDocument shows that the values in docs/OPERATIONS.md are valid.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### With Helm\n")
	_, block, _ := strings.Cut(section, "\n```yaml\n")
	block, _, found := strings.Cut(block, "\n```\n")
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(block), &values); err != nil || !found {
		t.Fatal(err, found)
	}
	if _, err := render(namespace, values); err != nil {
		t.Error(err)
	}
}

// TestDefinitions shows that the chart creates the definitions of deploy/crds on request, and that
// they stay when the release is removed.
func TestDefinitions(t *testing.T) {
	values := valuesOf(t, "minimal")
	values["customResourceDefinitions"] = map[string]any{"create": true}
	rendered, err := render(namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", "crds", "crds.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documents := func(text string) (all []map[string]any) {
		for one := range strings.SplitSeq(text, "---\n") {
			object := map[string]any{}
			if err := yaml.Unmarshal([]byte(one), &object); err != nil {
				t.Fatal(err)
			}
			if len(object) > 0 {
				all = append(all, object)
			}
		}
		return all
	}
	want := documents(string(text))
	for _, one := range want {
		one["metadata"] = map[string]any{"name": one["metadata"].(map[string]any)["name"], "annotations": map[string]any{"helm.sh/resource-policy": "keep"}}
	}
	if got := documents(rendered["deltarouter/templates/crds.yaml"]); len(want) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s", rendered["deltarouter/templates/crds.yaml"])
	}
}
