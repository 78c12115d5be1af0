package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// release is the name of the release in rendered manifests.
const release = "deltarouter"

// readValues reads a file of values.
func readValues(name string) (map[string]any, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	return values, yaml.Unmarshal(text, &values)
}

// render returns the manifests of the chart by template, as helm template does.
func render(namespace string, values map[string]any) (map[string]string, error) {
	return renderWith(nil, namespace, values)
}

// renderWith is render beside the objects of a cluster, as helm install does; nil: there is no
// cluster.
func renderWith(cluster engine.ClientProvider, namespace string, values map[string]any) (map[string]string, error) {
	loaded, err := loader.LoadDir(chart)
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValues(loaded, values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	if cluster == nil {
		return engine.Render(loaded, top)
	}
	return engine.RenderWithClientProvider(loaded, top, cluster)
}

// joined returns the manifests of all templates as one text, without those of helm test.
func joined(rendered map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		text := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rendered[name]), "---"))
		if path.Ext(name) == ".yaml" && text != "" {
			fmt.Fprintf(&out, "---\n%s\n", text)
		}
	}
	return out.String()
}

// plain returns manifests for kubectl apply: the chart's without the labels of Helm and its tests.
func plain(rendered map[string]string) string {
	maps.DeleteFunc(rendered, func(name, _ string) bool { return strings.Contains(name, "/templates/tests/") })
	var out strings.Builder
	for line := range strings.Lines(joined(rendered)) {
		if !strings.Contains(line, "helm.sh/chart:") && !strings.Contains(line, "app.kubernetes.io/managed-by:") {
			out.WriteString(line)
		}
	}
	return out.String()
}
