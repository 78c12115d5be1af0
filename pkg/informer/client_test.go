package informer_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestNewClient(t *testing.T) {
	// Guarantee: no-credential-plugins
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"one","clusters":[{"name":"one","cluster":{"server":"http://one:1"}},{"name":"two","cluster":{"server":"https://two:2/base"}}],
		"users":[{"name":"u","user":{"token":"t"}},{"name":"runs","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","interactiveMode":"Never","command":"true"}}},{"name":"old","user":{"auth-provider":{"name":"oidc"}}}],"contexts":[{"name":"runs","context":{"cluster":"two","user":"runs"}},{"name":"old","context":{"cluster":"two","user":"old"}},{"name":"one","context":{"cluster":"one","user":"u"}},{"name":"two","context":{"cluster":"two","user":"u"}}]}`
	must.Succeed(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	t.Setenv("HOME", dir)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	tests := []struct {
		name    string
		env     string
		cluster config.Cluster
		want    string
		mistake string
	}{
		{"file", "", config.Cluster{Kubeconfig: kubeconfig}, "http://one:1/", ""},
		{"context", "", config.Cluster{Kubeconfig: kubeconfig, Context: "two", QPS: 5}, "https://two:2/base", ""},
		{"environment", kubeconfig, config.Cluster{}, "http://one:1/", ""},
		{"no such file", "", config.Cluster{Kubeconfig: filepath.Join(dir, "none")}, "", "no usable kubeconfig"},
		{"no such context", kubeconfig, config.Cluster{Context: "three"}, "", `context three`},
		{"exec", "", config.Cluster{Kubeconfig: kubeconfig, Context: "runs"}, "", "or start the router with -allow-exec"},
		{"auth-provider", kubeconfig, config.Cluster{Context: "old"}, "", "or start the router with -allow-exec"},
		{"nothing", "", config.Cluster{}, "", "there is none, or it is empty: set cluster.kubeconfig or $KUBECONFIG, or run in a pod of the cluster"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.env)
			c, err := informer.NewClient(test.cluster, config.Policy{})
			if test.mistake != "" {
				must.Fail(t, err, test.mistake)
				return
			}
			must.Succeed(t, err)
			defer c.Close()
			if strings.TrimSuffix(c.Host(), "/") != strings.TrimSuffix(test.want, "/") {
				t.Errorf("host %s, want %s", c.Host(), test.want)
			}
		})
	}
}

func TestSpecsOf(t *testing.T) {
	one, err := informer.SpecsOf(&config.Source{Resource: "apps/v1/deployments", Cache: "full", ExcludeFields: []string{"status", "spec.x", "status"}})
	must.Succeed(t, err)
	want := informer.Spec{Drop: "spec.x\nstatus"}
	want.Resource.Group, want.Resource.Version, want.Resource.Resource = "apps", "v1", "deployments"
	if !reflect.DeepEqual(one, []informer.Spec{want}) {
		t.Errorf("got %+v", one)
	}
	two, err := informer.SpecsOf(&config.Source{Resource: "v1/pods", Namespaces: []string{"b", "a", "b"}})
	if err != nil || len(two) != 2 || two[0].Namespace != "a" || two[1].Namespace != "b" {
		t.Errorf("got %+v, %v", two, err)
	}
	for _, source := range []config.Source{{Resource: "pods"}, {Resource: "a/b/c/d"}, {Resource: "v1/"}, {Resource: "v1/pods", ExcludeFields: []string{"metadata.name"}}} {
		if _, err := informer.SpecsOf(&source); err == nil {
			t.Errorf("%+v: no error", source)
		}
	}
}

// The objects in client-go's log lines do not reach our log.
func TestQuietKlog(t *testing.T) {
	log := &logged.Buffer{}
	restore := informer.QuietKlog(slog.New(slog.NewTextHandler(log, nil)))
	defer restore()
	object := &unstructured.Unstructured{Object: map[string]any{"data": "topsecret"}}
	klog.Background().Error(errors.New("failed"), "Unable to add", "object", object, "reflector", "r", "n", 5)
	klog.Background().WithValues("object", object, "a", "b").Info("Warning: something")
	klog.Background().V(4).Info("not shown")
	text := log.String()
	for _, want := range []string{"level=WARN", "Unable to add", "err=failed", "reflector=r", "n=5", "object=*unstructured.Unstructured", "a=b", "message=something"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not have %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "topsecret") || strings.Contains(text, "not shown") {
		t.Errorf("log:\n%s", text)
	}
}

// TestKeep: a watch and Keep make the same object of a text.
func TestKeep(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[1]},"spec":{"x":1},"status":{"y":2,"z":3}}`
	for _, c := range []struct {
		source config.Source
		text   string
		want   string // the object, or the error
	}{
		{config.Source{}, pod, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"x":1},"status":{"y":2,"z":3}}`},
		{config.Source{ManagedFields: true, ExcludeFields: []string{"status.y", "spec"}}, pod, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[1]},"status":{"z":3}}`},
		{config.Source{Cache: config.CacheMetadata}, pod, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`},
		{config.Source{Cache: config.CacheMetadata}, `{"spec":{}}`, "not a Kubernetes object: metadata.name is missing or not a string"},
		{config.Source{}, `{"metadata":{}}`, "not a Kubernetes object: metadata.name is missing or not a string"},
		{config.Source{}, `{"metadata":`, "unexpected end of JSON"},
		{config.Source{}, `{} x`, "invalid JSON at byte 3: text after the value"},
	} {
		c.source.Resource = "v1/pods"
		specs, err := informer.SpecsOf(&c.source)
		must.Succeed(t, err)
		got := ""
		if o, err := informer.Keep(specs[0], "prod", c.text); err != nil {
			got = err.Error()
		} else if got = string(o.JSON()); o.Resource().Cluster != "prod" {
			t.Errorf("of cluster %q", o.Resource().Cluster)
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}
