package e2e

// rbacCase is a configuration whose rights are generated. In its texts NS and OTHER stand for two
// namespaces of its own, and KUBECONFIG for an administrator's kubeconfig.
type rbacCase struct {
	name   string
	config string   // Install adds its head, and a sink out if there is none
	flags  []string // of router rbac
	before string   // objects that exist at the start
	after  string   // objects that are applied when the router is ready; empty: workMap
	then   string   // objects that are applied after that
	events []string // all events on standard output
	writes int      // the number of events that the sink cluster delivers
	// public: the user is in no group that may read discovery and schemas.
	public bool
	// access: the API asks the API server about its users, and a request for the status is sent.
	access bool
}

const (
	workMap     = "{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: NS, labels: {app: web}}, data: {a: b}}\n"
	plainMap    = "{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: NS}, data: {a: b}}\n"
	ofMap       = "{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: NS, labels: {of: NS}}}\n"
	otherMap    = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: OTHER}}\n"
	workSecret  = "{apiVersion: v1, kind: Secret, metadata: {name: work, namespace: NS}}\n"
	workWidget  = "{apiVersion: rbac.example.com/v1, kind: Gear, metadata: {name: work, namespace: NS}}\n"
	workNode    = "{apiVersion: v1, kind: Node, metadata: {name: NS, labels: {of: NS}}}\n"
	workPod     = "{apiVersion: v1, kind: Pod, metadata: {name: work, namespace: NS, labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}\n"
	placedPod   = "{apiVersion: v1, kind: Pod, metadata: {name: work, namespace: NS}, spec: {nodeName: n1, containers: [{name: c, image: i}]}}\n"
	namespaceNS = "{apiVersion: v1, kind: Namespace, metadata: {name: OTHER, labels: {team: NS}}}\n"
	workRoutes  = "{apiVersion: deltarouter.io/v1alpha1, kind: Route, metadata: {name: web, namespace: NS}, spec: {from: [s], ops: [deleted], to: [out]}}\n" +
		"---\n{apiVersion: deltarouter.io/v1alpha1, kind: ClusterRoute, metadata: {name: NS}, spec: {from: [s], ops: [deleted], to: [out]}}\n"
	newSpace  = "{apiVersion: v1, kind: Namespace, metadata: {name: OTHER}}\n"
	workScale = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: work, namespace: NS}
spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
`
	gears = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.rbac.example.com}
spec:
  group: rbac.example.com
  names: {kind: Gear, plural: gears}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`
)

// toOut routes the deltas of the source s to standard output.
const toOut = "routes: [{name: r, from: s, ops: [added, deselected], to: out}]\n"

var added = []string{"r added NS/work"}

// sourceCases are sources of each kind.
func sourceCases() []rbacCase {
	both := []string{"r added NS/work", "r added OTHER/work"}
	left := []string{"r added NS/work", "r deselected NS/work"}
	return []rbacCase{
		{name: "users of the API", config: "sources: {s: {resource: v1/configmaps, namespaces: NS}}\n" + toOut, events: added, access: true},
		{name: "one namespace", config: "sources: {s: {resource: v1/configmaps, namespaces: NS}}\n" + toOut, events: added},
		{name: "two namespaces", config: "sources: {s: {resource: v1/configmaps, namespaces: [NS, OTHER]}}\n" + toOut, after: workMap + otherMap, events: both},
		{
			name:   "all namespaces",
			config: "sources: {s: {resource: v1/configmaps}}\nroutes: [{name: r, from: s, filter: 'object.metadata.namespace in [\"NS\", \"OTHER\"]', to: out}]\n",
			after:  workMap + otherMap, events: both,
		},
		{name: "metadata", config: "sources: {s: {resource: v1/configmaps, namespaces: NS, cache: metadata}}\n" + toOut, events: added},
		{
			name:   "metadata everywhere",
			config: "sources: {s: {resource: v1/configmaps, cache: metadata, labelSelector: of=NS}}\n" + toOut, after: ofMap, events: added,
		},
		{name: "identity", config: "sources: {s: {resource: v1/configmaps, namespaces: NS, cache: identity}}\n" + toOut, events: added},
		{
			name:   "labels",
			config: "sources: {s: {resource: v1/configmaps, namespaces: NS, labelSelector: app=web}}\n" + toOut, then: plainMap, events: left,
		},
		{
			name:   "labels everywhere",
			config: "sources: {s: {resource: v1/configmaps, labelSelector: of=NS}}\n" + toOut,
			after:  ofMap, then: plainMap, events: left,
		},
		{
			name: "selected namespaces", before: namespaceNS, after: otherMap, then: newSpace,
			config: "sources: {s: {resource: v1/configmaps, namespaceSelector: team=NS}}\n" + toOut,
			events: []string{"r added OTHER/work", "r deselected OTHER/work"},
		},
		{name: "one name", config: "sources: {s: {resource: v1/configmaps, namespaces: NS, fieldSelector: metadata.name=work}}\n" + toOut, events: added},
		{
			name:   "one name everywhere",
			config: "sources: {s: {resource: v1/configmaps, fieldSelector: metadata.name=work}}\nroutes: [{name: r, from: s, filter: 'object.metadata.namespace == \"NS\"', to: out}]\n",
			events: added,
		},
		{
			name:   "one name with labels",
			config: "sources: {s: {resource: v1/configmaps, namespaces: NS, fieldSelector: metadata.name=work, labelSelector: app=web}}\n" + toOut,
			then:   plainMap, events: left,
		},
		{name: "all but one name", config: "sources: {s: {resource: v1/configmaps, namespaces: NS, fieldSelector: metadata.name!=x}}\n" + toOut, events: added},
		{name: "a field", config: "sources: {s: {resource: v1/pods, namespaces: NS, fieldSelector: spec.nodeName=n1}}\n" + toOut, after: placedPod, events: added},
		{
			name: "shared",
			config: "sources: {s: {resource: v1/configmaps, namespaces: NS}, m: {resource: v1/configmaps, namespaces: NS, cache: metadata}}\n" +
				"routes: [{name: r, from: s, to: out}, {name: m, from: m, to: out}]\n",
			events: []string{"r added NS/work", "m added NS/work"},
		},
		{name: "secrets", config: "sources: {s: {resource: v1/secrets, namespaces: NS}}\n" + toOut, after: workSecret, events: added},
		{name: "data of secrets", config: "sources: {s: {resource: v1/secrets, namespaces: NS, secrets: true}}\n" + toOut, after: workSecret, events: added},
		{name: "custom", config: "sources: {s: {resource: rbac.example.com/v1/gears, namespaces: NS}}\n" + toOut, after: workWidget, events: added},
		{
			name:   "custom everywhere",
			config: "sources: {s: {resource: rbac.example.com/v1/gears, cache: metadata}}\nroutes: [{name: r, from: s, filter: 'object.metadata.namespace == \"NS\"', to: out}]\n",
			after:  workWidget, events: added,
		},
		{name: "nodes", config: "sources: {s: {resource: v1/nodes, labelSelector: of=NS}}\n" + toOut, after: workNode, events: []string{"r added NS"}},
		{
			name: "namespaces", config: "sources: {s: {resource: v1/namespaces, labelSelector: team=NS}}\n" + toOut,
			after: namespaceNS, then: newSpace, events: []string{"r added OTHER", "r deselected OTHER"},
		},
		{
			name: "look-up",
			config: "sources: {s: {resource: v1/configmaps, namespaces: NS}, p: {resource: v1/pods, namespaces: NS}}\n" +
				"routes: [{name: r, from: s, filter: 'count(\"p.namespace\", \"NS\") == 1', to: out}]\n",
			before: workPod, events: added,
		},
		{
			name: "watches",
			config: "sources: {s: {resource: v1/configmaps, namespaces: NS}, d: {resource: apps/v1/deployments, namespaces: [NS, OTHER]}}\n" +
				"routes: [{name: r, from: s, ops: sync, watches: {d: 'list(\"s\")'}, to: out}]\n",
			before: workMap, after: workScale, events: []string{"r sync NS/work"},
		},
		{
			name: "routes of objects", before: workRoutes, events: []string{"r entered NS/web", "r entered NS"},
			config: "sources: {s: {resource: deltarouter.io/v1alpha1/routes, namespaces: NS}, c: {resource: deltarouter.io/v1alpha1/clusterroutes, fieldSelector: metadata.name=NS}}\n" +
				"sinks: {out: {stdout: {}}}\n" +
				"routes: [{name: r, from: [s, c], when: 'object.?status.conditions.orValue([]).exists(c, c.type == \"Ready\" && c.status == \"True\")', to: out}]\n" +
				"customResources: {routes: {namespaces: NS, sources: s, sinks: out}, clusterRoutes: {namespaces: NS, sources: s, sinks: out}}\n",
		},
		{
			name: "without discovery", public: true, flags: []string{"-discovery"},
			config: "sources: {s: {resource: v1/configmaps, namespaces: NS, labelSelector: app=web}, c: {resource: rbac.example.com/v1/gears, namespaces: NS}}\n" +
				"routes: [{name: r, from: [s, c], ops: [added, deselected], to: out}]\n",
			then: plainMap, events: left,
		},
	}
}

// writing is a configuration whose route w executes an operation for each ConfigMap that is added.
func writing(allow, operation string) string {
	return "sources: {s: {resource: v1/configmaps, namespaces: NS}}\n" +
		"sinks: {cluster: {kubernetes: {allow: " + allow + "}}}\n" +
		"routes: [{name: w, from: s, ops: added, emit: '" + operation + "', to: cluster}]\n"
}

// sinkCases are sinks with each verb.
func sinkCases() []rbacCase {
	const merge, maps = `{"merge": {"metadata": {"labels": {"seen": "yes"}}}}`, "{resource: v1/configmaps, namespaces: NS, verbs: "
	on := func(resource, rest string) string {
		return `{"target": {"resource": "` + resource + `", "namespace": "NS", "name": "work"}, ` + rest + "}"
	}
	copied := func(verb string) string {
		return `{"` + verb + `": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made", "namespace": "OTHER"}}}`
	}
	space := func(verb, name string) string {
		return `{"` + verb + `": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "` + name + `"}}}`
	}
	return []rbacCase{
		{name: "merge", config: writing("["+maps+"merge}]", merge), writes: 1},
		{name: "merge everywhere", config: writing("[{resource: v1/configmaps, verbs: merge}]", merge), writes: 1},
		{name: "json", config: writing("["+maps+"json}]", `{"json": [{"op": "add", "path": "/data/x", "value": "y"}]}`), writes: 1},
		{name: "delete", config: writing("["+maps+"delete}]", `{"delete": {}}`), writes: 1},
		{name: "apply", config: writing("[{resource: v1/configmaps, namespaces: OTHER, verbs: apply}]", copied("apply")), writes: 1},
		{name: "create", config: writing("[{resource: v1/configmaps, namespaces: OTHER, verbs: create}]", copied("create")), writes: 1},
		{name: "dry run", config: writing("["+maps+"merge}], dryRun: true", merge), writes: 1},
		{name: "event", config: writing("["+maps+"event}]", `{"event": {"reason": "Seen"}}`), writes: 1},
		{
			name: "event about a node", before: workNode, writes: 1,
			config: writing("[{resource: v1/nodes, verbs: event}]", `{"target": {"resource": "v1/nodes", "name": "NS"}, "event": {"reason": "Seen"}}`),
		},
		{name: "evict", before: workPod, config: writing("[{resource: v1/pods, namespaces: NS, verbs: evict}]", on("v1/pods", `"evict": {}`)), writes: 1},
		{
			name: "status", before: workPod, writes: 1,
			config: writing("[{resource: v1/pods, namespaces: NS, subresources: status, verbs: merge}]",
				on("v1/pods", `"merge": {"status": {"message": "seen"}}, "subresource": "status"`)),
		},
		{
			name: "scale", before: workScale, writes: 1,
			config: writing("[{resource: apps/v1/deployments, namespaces: NS, subresources: scale, verbs: merge}]",
				on("apps/v1/deployments", `"merge": {"spec": {"replicas": 2}}, "subresource": "scale"`)),
		},
		{
			name: "custom object", before: workWidget, writes: 1,
			config: writing("[{resource: rbac.example.com/v1/gears, verbs: merge}]", on("rbac.example.com/v1/gears", merge[1:len(merge)-1])),
		},
		{name: "selected", before: namespaceNS, config: writing("[{resource: v1/configmaps, namespaceSelector: team=NS, verbs: apply}]", copied("apply")), writes: 1},
		{
			name: "named selected", before: namespaceNS, flags: []string{"-selected", "OTHER"}, writes: 1,
			config: writing("[{resource: v1/configmaps, namespaceSelector: team=NS, verbs: create}]", copied("create")),
		},
		{name: "apply a namespace", config: writing("[{resource: v1/namespaces, namespaces: NS-2, verbs: apply}]", space("apply", "NS-2")), writes: 1},
		{name: "create a namespace", config: writing("[{resource: v1/namespaces, namespaces: NS-3, verbs: create}]", space("create", "NS-3")), writes: 1},
		{
			name: "label a namespace", writes: 2,
			config: writing("[{resource: v1/namespaces, namespaces: NS, verbs: [merge, event]}]",
				`[{"target": {"resource": "v1/namespaces", "name": "NS"}, "merge": {"metadata": {"labels": {"seen": "yes"}}}},`+
					`{"target": {"resource": "v1/namespaces", "name": "NS"}, "event": {"reason": "Seen"}}]`),
		},
		{name: "a kubeconfig of its own", config: writing("["+maps+"merge}], kubeconfig: KUBECONFIG", merge), writes: 1},
		{
			name: "write without discovery", public: true, flags: []string{"-discovery"},
			config: writing("["+maps+"event}]", `{"event": {"reason": "Seen"}}`), writes: 1,
		},
	}
}
