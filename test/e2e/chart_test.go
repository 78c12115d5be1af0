package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// chartGoldens is the folder of the manifests that tools/chart renders from deploy/chart.
const chartGoldens = "../../tools/chart/testdata"

// chartObjects returns the objects of a file of manifests. ns replaces the namespace of the
// release, apps the other namespace of the goldens.
func chartObjects(t *testing.T, file, ns, apps string) (all []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	replaced := strings.NewReplacer("chart-release", ns, "chart-apps", apps, "namespace: deltarouter\n", "namespace: "+ns+"\n",
		"namespace: deltarouter}", "namespace: "+ns+"}", "deltarouter:deltarouter:", "deltarouter:"+ns+":").Replace(string(text))
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(replaced), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		must.Succeed(t, err)
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// clientOf returns the client for objects like the given one.
func clientOf(s *sandboxtest.Sandbox, object *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	if object.GetNamespace() == "" {
		return s.Dynamic().Resource(resource)
	}
	return s.Dynamic().Resource(resource).Namespace(object.GetNamespace())
}

// restrictedNamespace returns a namespace in which only pods of the standard restricted are
// admitted, with the accounts of the goldens.
func restrictedNamespace(t *testing.T, s *sandboxtest.Sandbox) (ns string) {
	t.Helper()
	ns = s.Namespace(t)
	s.Apply(t, "", fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}}", ns))
	for _, name := range []string{"deltarouter", "routes"} {
		s.Apply(t, ns, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s}}", name))
	}
	return ns
}

// TestChartManifests shows that the API server accepts each manifest of the chart, without an
// unknown field, and that it admits the pods of the StatefulSets, of the workers and of helm test
// under the Pod Security Standard restricted.
func TestChartManifests(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Start(t)
	definitions, err := os.ReadFile("testdata/monitoring-crds.yaml")
	must.Succeed(t, err)
	s.Apply(t, "", string(definitions))
	ns := restrictedNamespace(t, s)
	files, err := filepath.Glob(chartGoldens + "/*.yaml")
	must.Succeed(t, err)
	files = append(files, "../../deploy/manifests/deltarouter.yaml")
	strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	for _, file := range files {
		if strings.HasSuffix(file, ".values.yaml") {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			objects := chartObjects(t, file, ns, ns)
			for _, object := range objects {
				if object.GetKind() == "StatefulSet" || object.GetKind() == "Deployment" {
					objects = append(objects, podOfSet(t, object))
				}
			}
			for _, object := range objects {
				if object.GetKind() == "ServiceAccount" {
					object.SetName("new-" + object.GetName()) // the other one exists
				}
				if _, err := clientOf(s, object).Create(t.Context(), object, strict); err != nil {
					t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
				}
			}
		})
	}
}

// TestChartRights shows that the chart takes the rights in the form that router rbac -o helm-values
// prints, and that the sets of values of the chart have exactly those of their configurations.
func TestChartRights(t *testing.T) {
	t.Parallel()
	for file, namespace := range map[string]string{
		chartGoldens + "/minimal.values.yaml": "chart-release", chartGoldens + "/rbac.values.yaml": "chart-release",
		chartGoldens + "/monitoring.values.yaml": "chart-release", chartGoldens + "/hardened.values.yaml": "chart-release",
		chartGoldens + "/access.values.yaml": "chart-release", chartGoldens + "/fleet.values.yaml": "chart-release", "../../deploy/manifests/values.yaml": "deltarouter",
	} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			values := map[string]any{}
			text, err := os.ReadFile(file)
			must.Succeed(t, err)
			must.Succeed(t, yaml.Unmarshal(text, &values))
			config, ok := values["config"].(map[string]any)
			if !ok {
				t.Fatal("it has no configuration")
			}
			config["version"] = 1
			text, err = json.Marshal(config) // JSON is YAML
			must.Succeed(t, err)
			rbac := routertest.Command("rbac", "-config", "-", "-namespace", namespace, "-o", "helm-values")
			rbac.Stdin = bytes.NewReader(text)
			out, err := rbac.Output()
			must.Succeed(t, err)
			printed := map[string]any{}
			must.Succeed(t, yaml.Unmarshal(out, &printed))
			has, err := json.Marshal(withRules(values["rbac"]))
			must.Succeed(t, err)
			needs, err := json.Marshal(withRules(printed["rbac"]))
			must.Succeed(t, err)
			if !bytes.Equal(has, needs) {
				t.Errorf("it has\n%s\nrouter rbac prints\n%s", has, needs)
			}
		})
	}
}

// withRules returns the rights without an empty list or map of rules.
func withRules(rights any) map[string]any {
	all, _ := rights.(map[string]any)
	maps.DeleteFunc(all, func(_ string, rules any) bool {
		list, _ := rules.([]any)
		byNamespace, _ := rules.(map[string]any)
		return len(list)+len(byNamespace) == 0
	})
	return all
}

// podOfSet returns the pod of a StatefulSet or Deployment, with an emptyDir in place of the volume
// of its claim.
func podOfSet(t *testing.T, set *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	template, _, err := unstructured.NestedMap(set.Object, "spec", "template")
	must.Succeed(t, err)
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(set.GetName() + "-0")
	pod.SetNamespace(set.GetNamespace())
	if claims, _, _ := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates"); len(claims) > 0 {
		volumes, _, err := unstructured.NestedSlice(template, "spec", "volumes")
		must.Succeed(t, err)
		volumes = append(volumes, map[string]any{"name": "state", "emptyDir": map[string]any{}})
		must.Succeed(t, unstructured.SetNestedSlice(template, volumes, "spec", "volumes"))
	}
	return pod
}

// TestChartAccount runs the router with the ServiceAccount, the roles and the mounted configuration
// of a rendered chart: it gets the changes of all its sources and creates Events, and the API
// server refuses none of its requests. A change of the ConfigMap needs no restart.
func TestChartAccount(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	apps := s.Namespace(t)
	mounted := &mount{dir: t.TempDir(), text: installAccount(t, s, ns, apps)}
	mounted.write(t)
	routertest.Setenv(t, "POD_NAMESPACE", ns)
	routertest.Setenv(t, "POD_NAME", "deltarouter-0")
	routertest.Setenv(t, "DELTAROUTER_CONFIG", mounted.dir)

	// A new role works a moment after it was created.
	routertest.Poll(t, "check -connect, as helm test runs it, to find nothing", func() bool {
		check := routertest.Command("check", "-connect")
		check.Env = routertest.Environ(t)
		out, err := check.CombinedOutput()
		t.Logf("%s", out)
		return err == nil
	})
	routertest.Poll(t, "the right to create Events", func() bool { return mayCreateEvents(t, s, ns) })
	before := refused(t, s, ns)
	router := routertest.StartCommand(t, routertest.Command("run", "-drain-timeout=20s"))
	router.Ready(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("work", "1"))
	routertest.Use(t, s, routertest.ConfigMaps, apps).Make(routertest.ConfigMap("work", "1"))
	nodes := clientOf(s, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node"}})
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": ns}}}
	_, err := nodes.Create(t.Context(), node, metav1.CreateOptions{})
	must.Succeed(t, err)
	deleteAtEnd(t, nodes, ns)
	router.Expect(t, "maps added "+ns+"/work", "maps added "+apps+"/work", "nodes added "+ns)

	valid := mounted.text
	mounted.text = strings.Replace(valid, "to: out", "to: absent", 1)
	mounted.write(t)
	events := s.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace(ns)
	routertest.Poll(t, "the Event about the rejected configuration", func() bool {
		list, err := events.List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ConfigRejected,involvedObject.name=deltarouter-0"})
		must.Succeed(t, err)
		return len(list.Items) > 0
	})
	mounted.text = strings.Replace(valid, "name: maps\n", "name: renamed\n", 1)
	mounted.write(t)
	router.WaitLog(t, "the reload", func(log string) bool { return strings.Contains(log, `"msg":"reloaded"`) })
	routertest.Use(t, s, routertest.ConfigMaps, apps).Change("work", `{"data": {"value": "2"}}`)
	router.Expect(t, "renamed updated "+apps+"/work")
	if n := refused(t, s, ns); n != before {
		t.Errorf("the API server refused %d requests of the router", n-before)
	}
}

// installAccount creates the account and the roles of a rendered chart. It returns the
// configuration of its ConfigMap, with the token of the account and with the folders and ports of
// this machine.
func installAccount(t *testing.T, s *sandboxtest.Sandbox, ns, apps string) (config string) {
	t.Helper()
	for _, object := range chartObjects(t, chartGoldens+"/rbac.yaml", ns, apps) {
		switch object.GetKind() {
		case "ConfigMap":
			config, _, _ = unstructured.NestedString(object.Object, "data", "config.yaml")
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			_, err := clientOf(s, object).Create(t.Context(), object, metav1.CreateOptions{})
			must.Succeed(t, err)
			if object.GetNamespace() == "" {
				deleteAtEnd(t, clientOf(s, object), object.GetName())
			}
		}
	}
	for from, to := range map[string]string{
		"cluster:\n":           fmt.Sprintf("cluster:\n  kubeconfig: %q\n", accountKubeconfig(t, s, ns, "deltarouter")),
		"/var/lib/deltarouter": t.TempDir(), ": :8081": ": 127.0.0.1:0", "api: 127.0.0.1:8484": `api: ""`,
	} {
		if strings.Count(config, from) != 1 {
			t.Fatalf("%q is not once in\n%s", from, config)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	return config
}

// deleteAtEnd deletes an object without a namespace at the end of the test.
func deleteAtEnd(t *testing.T, objects dynamic.ResourceInterface, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), routertest.Patience)
		defer cancel()
		if err := objects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// refused returns the number of requests that the API server refused to the account of the chart.
func refused(t *testing.T, s *sandboxtest.Sandbox, ns string) int {
	t.Helper()
	return len(s.Requests(t, func(r sandboxtest.Request) bool {
		return r.User == "system:serviceaccount:"+ns+":deltarouter" && r.Code == 403
	}))
}

// mayCreateEvents reports whether the account of the chart may create Events.
func mayCreateEvents(t *testing.T, s *sandboxtest.Sandbox, ns string) bool {
	t.Helper()
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": map[string]any{
			"user":               "system:serviceaccount:" + ns + ":deltarouter",
			"resourceAttributes": map[string]any{"namespace": ns, "verb": "create", "version": "v1", "resource": "events"},
		},
	}}
	answer, err := clientOf(s, review).Create(t.Context(), review, metav1.CreateOptions{})
	must.Succeed(t, err)
	allowed, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed
}

// accountKubeconfig returns a kubeconfig with a token of a ServiceAccount.
func accountKubeconfig(t *testing.T, s *sandboxtest.Sandbox, ns, name string) (file string) {
	t.Helper()
	accounts := s.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(ns)
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"expirationSeconds": int64(3600)},
	}}
	answer, err := accounts.Create(t.Context(), request, metav1.CreateOptions{}, "token")
	must.Succeed(t, err)
	token, _, _ := unstructured.NestedString(answer.Object, "status", "token")
	config, err := clientcmd.LoadFromFile(s.Kubeconfig())
	must.Succeed(t, err)
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	}
	file = filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, clientcmd.WriteToFile(*config, file))
	return file
}

// mount is a folder with a mounted ConfigMap, whose key config.yaml has the text.
type mount struct {
	dir, text string
	versions  int
}

// write replaces the content like a kubelet does: it exchanges a link to a folder.
func (m *mount) write(t *testing.T) {
	t.Helper()
	m.versions++
	version := fmt.Sprintf("..%d", m.versions)
	must.Succeed(t, os.Mkdir(filepath.Join(m.dir, version), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(m.dir, version, "config.yaml"), []byte(m.text), 0o600))
	must.Succeed(t, os.Symlink(version, filepath.Join(m.dir, "..new")))
	must.Succeed(t, os.Rename(filepath.Join(m.dir, "..new"), filepath.Join(m.dir, "..data")))
	if m.versions == 1 {
		must.Succeed(t, os.Symlink("..data/config.yaml", filepath.Join(m.dir, "config.yaml")))
	}
}
