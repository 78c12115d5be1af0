package informer_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// feed makes a watch of pods with an Injector.
func feed(t *testing.T, spec informer.Spec) (*informer.Injector, *sink, *informer.Factory) {
	t.Helper()
	spec.Resource.Version, spec.Resource.Resource = "v1", "pods"
	s := newSink()
	f := informer.New(informer.Config{Cluster: "test", Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler), Downstream: s})
	fed, err := f.Watch(spec, newMemory(), informer.Source{Name: "pods"}).Injector("Pod")
	must.Succeed(t, err)
	return fed, s, f
}

// podText writes the text of a pod with its name, uid and resourceVersion; rest follows metadata.
func podText(name, uid, version, labels, rest string) string {
	return `{"metadata":{"namespace":"default","name":"` + name + `","uid":"` + uid + `","resourceVersion":"` + version +
		`","labels":{` + labels + `},"managedFields":[{}]}` + rest + `}`
}

// An Injector gives a watch the same objects as an API server.
func TestFeed(t *testing.T) {
	for _, c := range []struct {
		name string
		spec informer.Spec
		want []string // op, name@version of New, and the text of its object without metadata
	}{
		{"everything", informer.Spec{}, []string{
			`initial added a@1 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n1"},"status":{}}`,
			`added b@2 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`updated a@3 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`sync a@3 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`deleted b@4 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`stale deleted a@3 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`added a@5 {"kind":"Pod","apiVersion":"v1"}`,
		}},
		{"a namespace without any", informer.Spec{Namespace: "other"}, nil},
		{"labels", informer.Spec{LabelSelector: "app in (web)"}, []string{
			`initial added a@1 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n1"},"status":{}}`,
			`deselected a@1 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n1"},"status":{}}`,
		}},
		{"fields", informer.Spec{FieldSelector: "spec.node=n2,metadata.namespace=default"}, []string{
			`added b@2 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`added a@3 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`sync a@3 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`deleted b@4 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
			`deselected a@3 {"kind":"Pod","apiVersion":"v1","spec":{"node":"n2"}}`,
		}},
		{"dropped", informer.Spec{Drop: "spec", FieldSelector: "spec.node=n1"}, []string{
			`initial added a@1 {"kind":"Pod","apiVersion":"v1","status":{}}`,
			`deselected a@1 {"kind":"Pod","apiVersion":"v1","status":{}}`,
		}},
		{"metadata", informer.Spec{Cache: "metadata", FieldSelector: "spec.node=n2"}, []string{
			`added b@2 {"kind":"Pod","apiVersion":"v1"}`,
			`added a@3 {"kind":"Pod","apiVersion":"v1"}`,
			`sync a@3 {"kind":"Pod","apiVersion":"v1"}`,
			`deleted b@4 {"kind":"Pod","apiVersion":"v1"}`,
			`deselected a@3 {"kind":"Pod","apiVersion":"v1"}`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, s, factory := feed(t, c.spec)
			ctx := t.Context()
			if isClosed(factory.Synced("pods")) {
				t.Error("synced before the list")
			}
			for _, err := range []error{
				f.List(ctx, []string{podText("a", "u1", "1", `"app":"web"`, `,"spec":{"node":"n1"},"status":{}`)}, "1"),
				f.Put(ctx, podText("b", "u2", "2", "", `,"spec":{"node":"n2"}`)),
				f.Put(ctx, podText("a", "u1", "3", "", `,"spec":{"node":"n2"}`)),
				f.Sync(ctx, event.Key{Namespace: "default", Name: "a"}),
				f.Delete(ctx, podText("b", "u2", "4", "", `,"spec":{"node":"n2"}`)),
				f.Put(ctx, podText("a", "u3", "5", "", "")),
				f.Delete(ctx, podText("never", "u4", "6", "", "")),
				f.Sync(ctx, event.Key{Name: "never"}),
			} {
				must.Succeed(t, err)
			}
			if !isClosed(factory.Synced("pods")) {
				t.Error("not synced after the list")
			}
			var got []string
			for _, d := range s.peek() {
				o := d.Object()
				text, end, _ := strings.Cut(string(o.JSON()), `"metadata":{`)
				_, end, _ = strings.Cut(end, `}`) // of the labels
				text = strings.TrimSuffix(text+strings.TrimPrefix(strings.TrimPrefix(end, "}"), ","), ",}")
				if !strings.HasSuffix(text, "}") {
					text += "}"
				}
				line := d.Op.String() + " " + o.Key().Name + "@" + o.ResourceVersion() + " " + text
				if d.Initial {
					line = "initial " + line
				}
				if d.Stale {
					line = "stale " + line
				}
				got = append(got, line)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestFeedRefuses(t *testing.T) {
	f, _, _ := feed(t, informer.Spec{})
	if err := f.Put(t.Context(), `{"metadata":{}}`); err == nil {
		t.Error("an object without a name was taken")
	}
	for _, spec := range []informer.Spec{{LabelSelector: "a in"}, {FieldSelector: "a"}} {
		factory := informer.New(informer.Config{Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler)})
		if _, err := factory.Watch(spec, newMemory()).Injector(""); err == nil || !strings.Contains(err.Error(), "Selector: ") {
			t.Errorf("%v: %v", spec, err)
		}
	}
}
