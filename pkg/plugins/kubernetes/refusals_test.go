package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestAllow: an operation without a grant is rejected with the reason, and no operation of its
// event is sent.
func TestAllow(t *testing.T) {
	// Guarantee: kubernetes-allow
	k := start(t)
	o := k.configMap("a")
	other := k.Namespace(t)
	const grants = `
allow:
  - {resource: v1/configmaps, namespaces: [$ns], verbs: [merge, create]}
  - {resource: apps/v1/deployments, subresources: [scale], verbs: [merge]}
  - {resource: v1/pods, namespaceSelector: team=a, verbs: [delete]}
  - {resource: v1/nodes, namespaces: [$ns], verbs: [merge]}
`
	sink := k.open(grants)
	for name, c := range map[string]struct{ data, want string }{
		"resource":          {`{"merge":{},"target":{"resource":"v1/secrets","namespace":"$ns","name":"x"}}`, "allow says nothing of v1/secrets"},
		"group":             {`{"create":{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x","namespace":"$ns"}}}`, "allow says nothing of batch/v1/Job"},
		"kind":              {`{"create":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"$ns"}}}`, "allow says nothing of v1/secrets"},
		"another group":     {`{"merge":{},"target":{"resource":"example.com/v1/configmaps","namespace":"$ns","name":"a"}}`, "allow says nothing of example.com/v1/configmaps"},
		"namespace":         {`{"merge":{},"target":{"resource":"v1/configmaps","namespace":"$other","name":"a"}}`, `does not grant merge on v1/configmaps in namespace "$other"`},
		"no namespace":      {`{"merge":{},"target":{"resource":"v1/nodes","name":"a"}}`, "only in some namespaces, and this object has none"},
		"verb":              {`{"delete":{}}`, "does not grant delete on v1/configmaps"},
		"apply for merge":   {`{"apply":{"data":{"x":"y"}}}`, "does not grant apply on v1/configmaps"},
		"subresource":       {`{"merge":{},"subresource":"status"}`, "allow says nothing of v1/configmaps, subresource status"},
		"object of a scale": {`{"merge":{},"target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"a"}}`, "allow says nothing of apps/v1/deployments"},
		"selector":          {`{"delete":{},"target":{"resource":"v1/pods","namespace":"$other","name":"a"}}`, `does not grant delete on v1/pods in namespace "$other"`},
		"namespace of none": {`{"delete":{},"target":{"resource":"v1/pods","namespace":"no-such","name":"a"}}`, `does not grant delete on v1/pods in namespace "no-such"`},
		"one of a list":     {`[{"merge":{"data":{"k":"w"}}},{"delete":{}}]`, "does not grant delete on v1/configmaps"},
		"Namespace":         {`{"create":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}}`, "allow says nothing of v1/namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			err := write(t, sink, k.eventOf("v1/configmaps", o, strings.ReplaceAll(c.data, "$other", other)))
			if want := strings.ReplaceAll(c.want, "$other", other); kindOf(err) != "rejected" || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", kindOf(err), err, want)
			}
			if n := k.sent.Load(); n != 0 {
				t.Errorf("%d writes were sent", n)
			}
		})
	}
	if field(k.get("v1/configmaps", "a"), "data") != `{"k":"v"}` {
		t.Error("it was written")
	}
}

// TestAllowSelector: a selector grants objects in namespaces with the labels, which are read at the
// time of the write.
func TestAllowSelector(t *testing.T) {
	// Guarantee: kubernetes-allow
	k := start(t)
	o := k.configMap("a")
	fake := clockAt()
	environment := env(t, k.RESTConfig())
	environment.Clock = fake
	sink := open(t, `allow: [{resource: v1/configmaps, namespaceSelector: "team in (a,b),env!=prod", verbs: merge}]`, environment)
	try := func(labels, want string) {
		t.Helper()
		k.label(labels)
		fake.Advance(fake.Now().Add(11 * time.Second))
		if err := write(t, sink, k.eventOf("v1/configmaps", o, `{"merge":{"data":{"x":"y"}}}`)); kindOf(err) != want {
			t.Errorf("with %s it is %s (%v), want %s", labels, kindOf(err), err, want)
		}
	}
	try(`{"team":null}`, "rejected")
	try(`{"team":"b"}`, "delivered")
	try(`{"team":"b","env":"prod"}`, "rejected")
	try(`{"team":"a","env":"dev"}`, "delivered")
}

// TestAnotherOfTheName: an operation for the object of a delta neither changes nor creates another
// object of that name.
func TestAnotherOfTheName(t *testing.T) {
	// Guarantee: kubernetes-uid
	for name, data := range map[string]string{
		"delete": `{"delete":{}}`, "merge": `{"merge":{"data":{"x":"y"}}}`, "apply": `{"apply":{"data":{"x":"y"}}}`, "json": `{"json":[{"op":"add","path":"/data/x","value":"y"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t)
			sink := k.open(all)
			e := k.eventOf("v1/configmaps", k.configMap("a"), data)
			k.remove("v1/configmaps", "a")
			if err := write(t, sink, e); err != nil {
				t.Errorf("it is gone: %v", err)
			}
			if k.get("v1/configmaps", "a") != nil {
				t.Fatal("it was made")
			}
			made := k.configMap("a")
			if err := write(t, sink, e); err != nil {
				t.Errorf("there is another: %v", err)
			}
			if now := k.get("v1/configmaps", "a"); now == nil || now.GetUID() != made.GetUID() || field(now, "data") != `{"k":"v"}` {
				t.Error("the other one was written to")
			}
			// An event of the new object changes it.
			must.Succeed(t, write(t, sink, k.eventOf("v1/configmaps", made, data)))
			if now := k.get("v1/configmaps", "a"); now != nil && field(now, "data") != `{"k":"v","x":"y"}` {
				t.Error("it was not written", field(now, "data"))
			}
		})
	}
	for name, data := range map[string]string{
		"scale": `{"merge":{"spec":{"replicas":7}},"subresource":"scale"}`, "scale, json": `{"json":[{"op":"replace","path":"/spec/replicas","value":7}],"subresource":"scale"}`,
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t)
			sink := k.open(all)
			k.apply(deployment)
			e := k.eventOf("apps/v1/deployments", k.get("apps/v1/deployments", "web"), data)
			k.remove("apps/v1/deployments", "web")
			k.apply(deployment)
			must.Report(t, write(t, sink, e))
			if now := field(k.get("apps/v1/deployments", "web"), "spec", "replicas"); now != "1" {
				t.Errorf("it has %s replicas", now)
			}
		})
	}
}

// TestRefused: an impossible operation is rejected, postponed or done. The error has the reason
// without the content of the object.
func TestRefused(t *testing.T) {
	// Guarantee: kubernetes-no-values
	k := start(t)
	o := k.configMap("a")
	k.apply(deployment)
	k.apply(strings.TrimSuffix(pod, "}") + ", status: {phase: Running}}")
	k.apply(`{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {k: dg==}}`)
	k.apply(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}`)
	k.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, finalizers: [example.com/f]}}`)
	k.remove("v1/configmaps", "kept")
	t.Cleanup(func() { k.unfinalize("kept") })
	sink := k.open(all)
	const web = `"target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web"}`
	for name, c := range map[string]struct{ data, kind, want string }{
		"another manager": {
			`{"apply":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"$ns"},"spec":{"replicas":9}}}`,
			"rejected", `409 Conflict: .spec.replicas (conflict with "sandboxtest"); force takes them over`,
		},
		"another version":             {`{"merge":{"metadata":{"resourceVersion":"1"},"data":{"k":"s3cret"}}}`, "outdated", "409 Conflict"},
		"another version of an apply": {`{"apply":{"metadata":{"resourceVersion":"1"},"data":{"x":"s3cret"}}}`, "outdated", "409 Conflict"},
		"a patch of a missing field":  {`{"json":[{"op":"remove","path":"/data/none"}]}`, "rejected", "422 Invalid"},
		"not there":                   {`{"merge":{"data":{}},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"none"}}`, "rejected", "404 NotFound"},
		"not there, ignored": {
			`{"merge":{"data":{}},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"none"},"missing":"ignore"}`, "delivered", "",
		},
		"another uid":          {`{"merge":{"data":{"k":"s3cret"}},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"a","uid":"u"}}`, "rejected", "422 Invalid: metadata.uid"},
		"another uid, ignored": {`{"merge":{"data":{"k":"s3cret"}},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"a","uid":"u"},"missing":"ignore"}`, "delivered", ""},
		"another uid of a scale": {
			`{"merge":{"spec":{"replicas":3}},"subresource":"scale","target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web","uid":"u"}}`, "rejected", "Precondition failed",
		},
		"delete of another uid": {`{"delete":{},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"a","uid":"u"}}`, "delivered", ""},
		"being deleted":         {`{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","namespace":"$ns"}}}`, "postponed", "being deleted"},
		"budget":                {`{"evict":{},"target":{"resource":"v1/pods","namespace":"$ns","name":"web-0"}}`, "postponed", "disruption budget"},
		"field":                 {`{"apply":{"s3crets":{"x":1}}}`, "rejected", ".s3crets: field not declared in schema"},
		"field of a merge":      {`{"merge":{"dat":{"x":"s3cret"}}}`, "rejected", `unknown field "dat"`},
		"type":                  {`{"apply":{"data":{"x":["s3cret"]}}}`, "rejected", ".data.x: expected string"},
		"type of a merge":       {`{"merge":{"spec":{"replicas":"s3cret"}},` + web + `}`, "rejected", "spec.replicas of type int32"},
		"value":                 {`{"merge":{"metadata":{"labels":{"x":"s3cret!"}}}}`, "rejected", "metadata.labels: Invalid value: a valid label must be"},
		"number":                {`{"merge":{"spec":{"replicas":-99999}},` + web + `}`, "rejected", "spec.replicas: Invalid value: must be greater"},
		"time":                  {`{"apply":{"metadata":{"creationTimestamp":"s3cret"}}}`, "rejected", "parsing time … as …"},
		"test":                  {`{"json":[{"op":"test","path":"/data/k","value":"s3cret"}]}`, "outdated", "422 Invalid"},
		"kind":                  {`{"create":{"apiVersion":"v1","kind":"ConfigMop","metadata":{"name":"x","namespace":"$ns"}}}`, "rejected", "the API server does not have v1/ConfigMop"},
		"namespace of none":     {`{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}}`, "rejected", "metadata.namespace is missing"},
		"namespace for nothing": {`{"apply":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","namespace":"$ns"}}}`, "rejected", "metadata.namespace: objects of this kind have none"},
		"Secret":                {`{"create":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"$ns"},"data":{"x":"s3cret!"}}}`, "rejected", "400 BadRequest"},
		"Secret, apply":         {`{"apply":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"$ns"},"data":{"x":"s3cret!"}}}`, "rejected", "500"},
		"Secret, type":          {`{"apply":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"$ns"},"immutable":"s3cret"}}`, "rejected", "500"},
		"Secret, merge":         {`{"merge":{"data":{"s3cret!":"dg=="}},"target":{"resource":"v1/secrets","namespace":"$ns","name":"s"}}`, "rejected", "422 Invalid: data["},
	} {
		t.Run(name, func(t *testing.T) {
			err := write(t, sink, k.eventOf("v1/configmaps", o, c.data))
			if kindOf(err) != c.kind || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s %q", kindOf(err), err, c.kind, c.want)
			}
			if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), "s3crets", ""), "s3cret") && name != "Secret, merge" {
				t.Errorf("it tells what is in the object: %v", err)
			}
			if strings.HasPrefix(name, "Secret") && (strings.Contains(err.Error(), "base64") || strings.Contains(err.Error(), "expected")) {
				t.Errorf("it repeats what the API server says of a Secret: %v", err)
			}
		})
	}
	if got := field(k.get("v1/configmaps", "a"), "data"); got != `{"k":"v"}` {
		t.Errorf("the object has %s", got)
	}
}

// TestForce: with force, apply takes the ownership of fields.
func TestForce(t *testing.T) {
	k := start(t)
	o := k.configMap("a")
	e := k.eventOf("v1/configmaps", o, `{"apply":{"data":{"k":"mine"}}}`)
	if err := write(t, k.open(all), e); kindOf(err) != "rejected" {
		t.Errorf("without force it is %s: %v", kindOf(err), err)
	}
	must.Report(t, write(t, k.open(all+"force: true\nfieldManager: me\n"), e))
	now := k.get("v1/configmaps", "a")
	if field(now, "data") != `{"k":"mine"}` || !strings.Contains(field(now, "metadata", "managedFields"), `"manager":"me:r"`) {
		t.Errorf("it has %s", field(now, "data"))
	}
}

// TestDryRun: the API server checks the write and does not store it.
func TestDryRun(t *testing.T) {
	k := start(t)
	o := k.configMap("a")
	k.apply(deployment)
	k.apply(pod)
	sink := k.open(all + "dryRun: true\n")
	version := func() string {
		return fmt.Sprint(k.get("v1/configmaps", "a").GetResourceVersion(), k.get("apps/v1/deployments", "web").GetResourceVersion(), k.get("v1/pods", "web-0").GetResourceVersion())
	}
	before := version()
	for _, data := range []string{
		`{"apply":{"data":{"x":"y"}}}`, `{"merge":{"data":{"x":"y"}}}`, `{"json":[{"op":"add","path":"/data/x","value":"y"}]}`, `{"delete":{}}`,
		`{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"$ns"}}}`, `{"event":{"reason":"R"}}`,
		`{"evict":{},"target":{"resource":"v1/pods","namespace":"$ns","name":"web-0"}}`,
		`{"merge":{"spec":{"replicas":7}},"subresource":"scale","target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web"}}`,
		`{"merge":{"status":{"message":"m"}},"subresource":"status","target":{"resource":"v1/pods","namespace":"$ns","name":"web-0"}}`,
	} {
		if err := write(t, sink, k.eventOf("v1/configmaps", o, data)); err != nil {
			t.Errorf("%s: %v", data, err)
		}
	}
	if err := write(t, sink, k.eventOf("v1/configmaps", o, `{"merge":{"data":{"x":1}}}`)); kindOf(err) != "rejected" {
		t.Errorf("it is not checked: %v", err)
	}
	if after := version(); after != before || k.get("v1/configmaps", "b") != nil || len(k.list("events.k8s.io/v1/events")) != 0 {
		t.Errorf("something was written: %s, then %s", before, after)
	}
}

// TestPartOfABatch: a rejected or postponed event does not delay the other events of a batch,
// except that a postponed event delays those of its key.
func TestPartOfABatch(t *testing.T) {
	// Guarantee: key-order-in-batch
	k := start(t)
	o := k.configMap("a")
	k.apply(strings.TrimSuffix(pod, "}") + ", status: {phase: Running}}")
	k.apply(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}`)
	batch := k.events(o, `{"delete":7}`, `{"evict":{},"target":{"resource":"v1/pods","namespace":"$ns","name":"web-0"}}`, `{"merge":{"data":{"x":"y"}}}`, `{"apply":[]}`, `{"merge":{"data":{"x":"z"}}}`)
	for i := 2; i < 4; i++ {
		batch[i].Key = "another"
	}
	errs := k.open(all).Write(t.Context(), batch)
	plugintest.CheckOrder(t, batch, errs)
	if got := field(k.get("v1/configmaps", "a"), "data", "x"); got != `"y"` {
		t.Errorf("the object has %s", got)
	}
	for i, want := range []string{"rejected", "postponed", "delivered", "rejected", "postponed"} {
		if len(errs) != 5 || kindOf(errs[i]) != want {
			t.Fatalf("event %d: %v, want %s", i, errs, want)
		}
	}
	if plugins.RetryAfter(errs[1]) > 60e9 {
		t.Errorf("it is to wait for %v", plugins.RetryAfter(errs[1]))
	}
}
