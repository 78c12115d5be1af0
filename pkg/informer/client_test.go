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
)

func TestNewClient(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"one","clusters":[{"name":"one","cluster":{"server":"http://one:1"}},{"name":"two","cluster":{"server":"https://two:2/base"}}],
		"users":[{"name":"u","user":{"token":"t"}}],"contexts":[{"name":"one","context":{"cluster":"one","user":"u"}},{"name":"two","context":{"cluster":"two","user":"u"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
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
		{"nothing", "", config.Cluster{}, "", "no usable kubeconfig"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.env)
			c, err := informer.NewClient(test.cluster)
			if test.mistake != "" {
				if err == nil || !strings.Contains(err.Error(), test.mistake) {
					t.Errorf("error %v, want %q", err, test.mistake)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if strings.TrimSuffix(c.Host(), "/") != strings.TrimSuffix(test.want, "/") {
				t.Errorf("host %s, want %s", c.Host(), test.want)
			}
		})
	}
}

func TestSpecsOf(t *testing.T) {
	one, err := informer.SpecsOf(&config.Source{Resource: "apps/v1/deployments", Cache: "full", Drop: []string{"status", "spec.x", "status"}})
	if err != nil {
		t.Fatal(err)
	}
	want := informer.Spec{Drop: "spec.x\nstatus"}
	want.Resource.Group, want.Resource.Version, want.Resource.Resource = "apps", "v1", "deployments"
	if !reflect.DeepEqual(one, []informer.Spec{want}) {
		t.Errorf("got %+v", one)
	}
	two, err := informer.SpecsOf(&config.Source{Resource: "v1/pods", Namespaces: []string{"b", "a", "b"}})
	if err != nil || len(two) != 2 || two[0].Namespace != "a" || two[1].Namespace != "b" {
		t.Errorf("got %+v, %v", two, err)
	}
	for _, source := range []config.Source{{Resource: "pods"}, {Resource: "a/b/c/d"}, {Resource: "v1/"}, {Resource: "v1/pods", Drop: []string{"metadata.name"}}} {
		if _, err := informer.SpecsOf(&source); err == nil {
			t.Errorf("%+v: no error", source)
		}
	}
}

// client-go logs objects; ours does not show them.
func TestQuietKlog(t *testing.T) {
	log := &logs{}
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
