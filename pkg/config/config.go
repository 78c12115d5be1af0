// Package config reads the router's YAML. [Load] returns a [Config] of a file, from which
// internal/compile makes the plan of the router.
//
// It differs from yaml.Unmarshal in three points:
//
//   - It reports all mistakes at once. Each [Problem] has its position (file, line, column and
//     path), its cause and its remedy.
//   - A [Node] is a piece of YAML with its position. A package that knows the meaning of a piece,
//     such as a kind of sink, decodes it ([Node.Decode]) and reports problems of its own
//     ([Node.Problemf]) with the same precision.
//   - An [Expr] translates a position inside a CEL expression to a position in the file, for all
//     YAML styles.
//
// The tags of a struct define its valid YAML. The JSON Schema and docs/CONFIG.md
// (internal/config/reference) are generated from the same tags:
//
//	yaml:"name"           the key; yaml:"-" is no key; without a tag, no key
//	yaml:"name,required"  must be present
//	yaml:"name,path"      a file: relative to the folder of the configuration file (URLs are unchanged), if the [Policy] allows it
//	yaml:"name,written"   the same, of a file or folder that the router writes to
//	yaml:"name,module"    as path, or a reference to a registry (oci://…), which is unchanged
//	yaml:",inline"        not a key: a struct whose keys are beside those of its owner
//	yaml:",self"          not a key: a Node that receives the piece itself
//	default:"10ms"        the value if the key is absent; for a list, its elements with blanks between them
//	enum:"skip deliver"   the only values; for a list, of its elements
//	min:"1" max:"10"      bounds of a number or duration, or of the length of a list or map
//	doc:"…"               one sentence for the schema and the reference
//
// Field types are strings, booleans, integers, floats, time.Duration, [Size], [Count], [Secret],
// [Expr], [Node] (kept undecoded), structs, and pointers, slices and maps with string keys of
// those. ${VAR} and ${VAR:-default} are expanded in every scalar except an [Expr] ($${ is a literal
// ${). A key without a value is a mistake, unless a Node is expected.
//
// Only this package and internal/config/yamlfile use the YAML library.
package config

import (
	"reflect"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/scalar"
	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/internal/similar"
)

// Config is the whole configuration with its defaults. It is not modified after [Load].
type Config struct {
	// of the file: configurations with the same hash have the same text
	Hash     string                `yaml:"-"`
	Policy   Policy                `yaml:"-"` // the policy of [Load]
	Version  int                   `yaml:"version,required" min:"1" max:"1" doc:"Version of this format: 1."`
	Cluster  Cluster               `yaml:"cluster" doc:"The cluster whose changes are routed."`
	State    State                 `yaml:"state" doc:"The state on disk."`
	History  *History              `yaml:"history" doc:"The record of changes and decisions on disk, for router history, why and runs: off, or the keys below, see [HISTORY](HISTORY.md). Absent: with state.dir, the defaults of these keys, with at most an eighth of state.maxSize; without it, off."`
	Listen   Listen                `yaml:"listen" doc:"The addresses that the router listens on."`
	Fleet    *Fleet                `yaml:"fleet" doc:"Further processes with this configuration: a standby, which takes over when the leader ends, and workers, which handle the deltas of routes with workers. They exchange data over NATS JetStream. Absent: one process does everything."`
	Traces   *Traces               `yaml:"traces" doc:"The export of traces to OpenTelemetry. Absent: deltas are not traced."`
	Schemas  string                `yaml:"schemas,path" doc:"Folder of the cluster's schemas that router schema pull has saved, for router check, test, explain and eval. A running router asks the cluster instead."`
	Define   map[string]Expr       `yaml:"define" doc:"CEL expressions that other expressions use by name."`
	Sources  map[string]*Source    `yaml:"sources,required" min:"1" doc:"The watched resources, by name."`
	Handlers map[string]*Component `yaml:"handlers" doc:"The handlers, which turn deltas into events, by name: one kind with its configuration."`
	Sinks    map[string]*Component `yaml:"sinks,required" min:"1" doc:"The sinks, which deliver events, by name: one kind with its configuration."`
	Include  []*Include            `yaml:"include" doc:"Files of others with further routes, and the parts of this configuration that these may use. See [TEAMS](TEAMS.md)."`
	Routes   []*Route              `yaml:"routes" min:"1" doc:"The routes, which state the deltas that are delivered, and where. Required, unless there is an include or customResources. The routes of included files and of objects follow them."`

	CustomResources CustomResources `yaml:"customResources" doc:"Objects of the cluster with further routes, and the parts of this configuration that these may use. See [CUSTOM-RESOURCES](CUSTOM-RESOURCES.md)."`

	// Fragments are the included files and the objects with routes, in order. The routes of those
	// without problems are in Routes too.
	Fragments []*Fragment `yaml:"-"`

	doc  *document
	main *Config // of the configuration of a fragment: the one that includes it
	of   *Scope  // of the fragment; nil: this is no fragment
}

// Size is a number of bytes: 512, 64Mi, 1Gi (powers of 1024), or 10k, 10M, 1G (powers of 1000). It
// is never negative.
type Size = scalar.Size

// Count is a number of things: 500, 10k, 10M or 1G. It is never negative.
type Count = scalar.Count

// Suggest completes a message about an unknown name. It proposes the most similar known name, or
// else lists all known names.
func Suggest(name string, known []string) string { return similar.Suggest(name, known) }

// Cluster is the connection to an API server.
type Cluster struct {
	Name       string  `yaml:"name" default:"default" doc:"Name of the cluster, part of every event."`
	Kubeconfig string  `yaml:"kubeconfig,path" doc:"Kubeconfig file. Empty: $KUBECONFIG, in-cluster, ~/.kube/config."`
	Context    string  `yaml:"context" doc:"Context of the kubeconfig. Empty: its current context."`
	QPS        float32 `yaml:"qps" min:"0" doc:"Maximum number of requests per second to the API server. 0: the router sets no limit."`
	Burst      int     `yaml:"burst" min:"0" doc:"Number of requests that may be sent at once before qps limits them."`
	Events     bool    `yaml:"events" doc:"Create Kubernetes Events on the pod of the router, for kubectl describe pod: about a rejected configuration, paused routes, dead letters and refused sources. The environment variables POD_NAMESPACE, POD_NAME and POD_UID name the pod."`
}

// State configures the state on disk.
type State struct {
	Dir     string `yaml:"dir,written" doc:"Folder of the state, created if it does not exist. A folder that every user can write to, such as a tmpfs or an emptyDir, is rejected: name a folder in it. Empty: the state is lost when the process ends."`
	MaxSize Size   `yaml:"maxSize" default:"8Gi" min:"1Mi" doc:"Maximum size of the state file. When it is reached, new deltas wait. The pending deltas of all routes may use half of it, and the dead letters a quarter; those of an include, or of the Routes of a namespace, may use an eighth and a sixteenth of it."`

	DeadLetters DeadLetters `yaml:"deadLetters" doc:"The limits of the dead letters."`
}

// DeadLetters limits the dead letters on disk.
type DeadLetters struct {
	Max    int           `yaml:"max" default:"10000" min:"1" doc:"Maximum number of dead letters of a route. Beyond it the oldest are lost."`
	MaxAge time.Duration `yaml:"maxAge" default:"720h" min:"1s" doc:"Time after which a dead letter is removed."`
}

// Listen contains the addresses to listen on. An empty address is not used.
type Listen struct {
	Probes string `yaml:"probes" doc:"host:port of /healthz, /readyz and, without access, /metrics, always without TLS. Empty: none."`
	API    string `yaml:"api" doc:"Address of the API for router status, dlq, get, resync and tap: host:port, or unix:/path for a socket that only its owner may use. The host is a loopback address, unless access and tls are set. Empty: none."`
	TLS    struct {
		Cert     Secret `yaml:"cert" doc:"PEM certificate of the API, followed by its intermediate certificates, as {file: tls.crt}."`
		Key      Secret `yaml:"key" doc:"PEM key of cert."`
		ClientCA Secret `yaml:"clientCA" doc:"PEM certificates of the authorities that sign client certificates. CN is the user, and each O a group. Without it, no client certificate is requested. Needs access."`
	} `yaml:"tls" doc:"Serves the API with TLS. A changed file is used for the next connection."`
	Access string `yaml:"access" enum:"kubernetes" doc:"kubernetes: each request to the API needs a token of the cluster or a client certificate (TokenReview), and its sender the rights on its path or on the objects that it shows (SubjectAccessReview). The address serves /healthz, /readyz and /metrics too. Absent: each request is permitted."`
}

// Traces configures the export of traces: one span for each delta in each route.
type Traces struct {
	Node        `yaml:",self"`
	Endpoint    string            `yaml:"endpoint,required" doc:"URL of the receiver: http:// or https://, a host and a port. With protocol http and no path, the path is /v1/traces."`
	Protocol    string            `yaml:"protocol" default:"grpc" enum:"grpc http" doc:"grpc: OTLP/gRPC, usually on port 4317. http: OTLP/HTTP with protobuf, usually on port 4318."`
	Headers     map[string]Secret `yaml:"headers" doc:"Headers (of gRPC: metadata) to send."`
	TLS         TLS               `yaml:"tls" doc:"TLS settings of an endpoint with https: the certificate authorities of the receiver, and a client certificate."`
	Timeout     time.Duration     `yaml:"timeout" default:"10s" min:"1ms" max:"10m" doc:"Timeout of a request."`
	Ratio       float64           `yaml:"ratio" default:"0.1" min:"0" max:"1" doc:"Share of the changes whose traces are exported. Failed deltas are exported regardless of it."`
	ServiceName string            `yaml:"serviceName" default:"deltarouter" doc:"Name of the router in traces, the attribute service.name."`
}

// TLS is the TLS configuration of a connection to a receiver.
type TLS struct {
	CA         Secret `yaml:"ca" doc:"PEM certificates of the authorities that sign the server certificate, as {file: ca.crt}; without it those of the system."`
	Cert       Secret `yaml:"cert" doc:"PEM client certificate of the router, followed by its intermediate certificates."`
	Key        Secret `yaml:"key" doc:"PEM key of cert."`
	ServerName string `yaml:"serverName" doc:"The name that the server certificate must have; without it the host of the address."`
}

// The values of [Source].Cache.
const (
	CacheFull     = "full"     // whole objects
	CacheAuto     = "auto"     // the fields that something reads
	CacheMetadata = "metadata" // metadata; the watch transfers no more
	CacheIdentity = "identity" // names and versions: no oldObject, no look-ups
)

// Source is a watched resource.
type Source struct {
	Node              `yaml:",self"`
	Resource          string            `yaml:"resource,required" doc:"[group/]version/resource, as in v1/pods or apps/v1/deployments."`
	Namespaces        []string          `yaml:"namespaces" min:"1" doc:"Namespaces to watch. Absent: all."`
	NamespaceSelector string            `yaml:"namespaceSelector" doc:"Label selector of the namespaces to watch, as in team=payments,env!=prod. The source follows the namespaces: objects in a namespace that begins to match come as added, those in one that no longer matches as deselected. It replaces namespaces."`
	LabelSelector     string            `yaml:"labelSelector" doc:"Kubernetes label selector."`
	FieldSelector     string            `yaml:"fieldSelector" doc:"Kubernetes field selector."`
	ExcludeFields     []string          `yaml:"excludeFields" doc:"Fields of the objects that the cache does not keep, as in status.conditions."`
	ManagedFields     bool              `yaml:"managedFields" doc:"Keep metadata.managedFields."`
	Resync            time.Duration     `yaml:"resync" doc:"Interval at which all objects are repeated, as sync. 0: never."`
	Cache             string            `yaml:"cache" default:"full" enum:"full auto metadata identity" doc:"The part of an object that the cache keeps. full: the whole object. auto: the fields that the routes, indexes and handlers read, as router check shows them; the other fields are dropped on arrival. metadata: its metadata; the watch transfers no more. identity: its name and version; there are no oldObject and no look-ups."`
	Secrets           bool              `yaml:"secrets" doc:"Keep the data of v1/secrets. Otherwise the router removes the data on arrival, and all annotations that may contain a copy of it."`
	Indexes           map[string][]Expr `yaml:"indexes" doc:"The indexes by name: a CEL expression, or a list of them whose values are joined. A value is a key of the index; each element of a list and each key of a map is one."`
}

// Component is a handler or a sink: a kind and its configuration, as in {webhook: {url: …}}.
type Component struct {
	Node   Node   // the whole component
	Kind   string // webhook
	Config Node   // {url: …}
}

// Values of [Route].Existing, Deliver, Overflow and OnFailure. The other values are the defaults of
// the keys.
const (
	ExistingDeliver = "deliver" // objects that exist already come once, as added and initial

	DeliverLatest = "latest" // the net change of an object since its last delivery

	OverflowCoalesce   = "coalesce"   // a full queue keeps the net change of each object
	OverflowBlock      = "block"      // a full queue slows down all routes of the source
	OverflowDropOldest = "dropOldest" // a full queue loses its oldest delta

	OnFailureDrop  = "drop"  // a rejected delta is lost
	OnFailurePause = "pause" // the route pauses
)

// Route states which deltas are delivered, where, and how.
type Route struct {
	// Upstream has the routes that deliver to this one, in the order of the configuration. From has
	// their sources then. Parse sets both.
	Upstream []string `yaml:"-"`
	// Fragment contains the route; nil: the configuration itself does.
	Fragment *Fragment `yaml:"-" json:"-"`

	Node        Node     `yaml:",self"`
	Name        string   `yaml:"name,required" doc:"Name of the route, part of every event."`
	ID          string   `yaml:"id" doc:"Identity of the route in the state. To rename a route, change its name, and set id to the old name. Absent: the name."`
	From        []string `yaml:"from" min:"1" doc:"The sources of the route. Absent: the route gets the events of the routes that have it as a target, and has their sources."`
	Ops         []string `yaml:"ops" default:"added updated deleted" enum:"added updated deleted deselected sync entered left" min:"1" doc:"The types of changes. With when, they are entered (the condition begins to hold) and left (it ends), and both are the default. Without from, the default is all."`
	Filter      *Filter  `yaml:"filter" doc:"CEL, bool: true for the deltas that the route wants; one expression, or one by source. Absent: all deltas."`
	Emit        *Expr    `yaml:"emit" doc:"CEL, a map or a list of maps: the data of the events. event(map).withType(text).withSubject(text) sets type and subject too."`
	Key         *Expr    `yaml:"key" doc:"CEL, string, int or bool: deltas of one key stay in order. Absent: the object."`
	Handler     string   `yaml:"handler" doc:"Handler that makes the events. Absent: the data of the event is the delta."`
	To          []Target `yaml:"to,required" min:"1" doc:"Targets: the names of sinks, and {route: NAME} for another route."`
	Existing    string   `yaml:"existing" default:"skip" enum:"skip deliver" doc:"Handling of the objects that exist at the first start. deliver: they are delivered as added. With when, deliver is the default: a condition that holds already is delivered as entered."`
	Deliver     string   `yaml:"deliver" default:"every" enum:"every latest" doc:"every: every delta. latest: the net change of each object."`
	Overflow    string   `yaml:"overflow" default:"coalesce" enum:"coalesce block dropOldest" doc:"Behaviour when the queue is full. coalesce: the queue keeps the net change of each object. block: all routes of the source wait; upstream routes wait in any case. dropOldest: the oldest delta is lost, and counted."`
	Batch       Batch    `yaml:"batch" doc:"Limits of the deltas that a handler gets in one call."`
	Concurrency int      `yaml:"concurrency" default:"4" min:"1" max:"1024" doc:"Number of batches that are handled and delivered at the same time."`
	Queue       Queue    `yaml:"queue" doc:"Limits of the backlog."`
	Retry       Retry    `yaml:"retry" doc:"Limits of the attempts for a delta."`
	Shadow      bool     `yaml:"shadow" doc:"Everything but the delivery: the route evaluates, handles and limits deltas with a state of its own, and its events go nowhere. The history and the tap have what it would have delivered. See [HISTORY](HISTORY.md#a-rule-in-the-shadow)."`
	OnFailure   string   `yaml:"onFailure" default:"deadLetter" enum:"deadLetter drop pause" doc:"Handling of a delta that failed permanently. deadLetter: it becomes a dead letter, see router dlq. drop: it is lost, and counted. pause: the route pauses."`

	// Further causes of a delivery.

	Watches map[string]Expr `yaml:"watches" doc:"By source: a CEL expression about its deltas. Its result are objects of the sources in from. The route processes them again, as sync."`

	// Rules about time.

	When       *Filter       `yaml:"when" doc:"CEL, bool, over object and now: a condition. The route reports when it begins to hold for an object (entered), and when it ends (left); one expression, or one by source."`
	For        time.Duration `yaml:"for" min:"1s" doc:"Time that the condition of when must hold before it is reported as entered. With ops: [deleted], the time that an object must be gone."`
	Every      time.Duration `yaml:"every" min:"1s" doc:"Interval of the reminders (entered with repeat) while the condition of when holds. Absent: there are none."`
	Reevaluate time.Duration `yaml:"reevaluate" min:"1s" doc:"Interval at which when is evaluated again for every object, even without a change: for conditions with now."`
	Limit      *Limit        `yaml:"limit" doc:"Limit of the deliveries of a key. Deltas beyond it are suppressed, and the next delivery has their number, as suppressed. Deltas without an event, and failed ones, do not count. With when, a suppressed condition that still holds is delivered when the limit allows it, and left is delivered once per key, when the condition holds for none of its objects."`
	Debounce   Debounce      `yaml:"debounce" doc:"Time without a change of an object, or of the key of the route, before its net change is delivered."`
	MaxAge     time.Duration `yaml:"maxAge" min:"1s" doc:"Maximum age of a delivered change. An older one becomes a dead letter, or is dropped with onFailure: drop. Absent: there is no limit."`

	With map[string]Expr `yaml:"with" doc:"By name: CEL, of any type. The values are evaluated for each delta when it is handled, also on the leader of a fleet for its workers, and are the field with of the delta that the handler gets, or of the event of a route without handler. At most 16 values of 256Ki each."`

	Workers *Workers `yaml:"workers" doc:"Handles and delivers the deltas of the route on the workers of the fleet, router worker. The filter and the rules about time stay with the leader. Needs fleet. Absent: the leader handles and delivers them."`
}

// Batch limits the deltas of one call of a handler.
type Batch struct {
	Size int           `yaml:"size" default:"64" min:"1" max:"10000" doc:"Maximum number of deltas in a batch."`
	Wait time.Duration `yaml:"wait" max:"24h" doc:"Time for which changes are collected, if they are frequent: for larger batches, and fewer requests. A batch that is not full is taken at once if fewer than three changes were taken within this time before it. With debounce, each batch waits so long from its first change on. A group is collected so long, see by. At most 1m, unless it is a group. Absent: a batch has the changes that are there when a worker is free."`
	By   *Expr         `yaml:"by" doc:"CEL, string, int or bool: the group of a delta. A batch contains one group, and emit makes events of the whole batch: objects are those of all deltas, object is the last one."`
}

// Queue limits the backlog of a route.
type Queue struct {
	Memory int  `yaml:"memory" default:"10000" min:"1" doc:"Maximum number of deltas in memory. Further ones go to disk, see disk."`
	Bytes  Size `yaml:"bytes" default:"64Mi" min:"1Mi" doc:"Maximum size of the deltas in memory: of their objects, the old ones included, and of their events. Further ones go to disk, see disk. A delta that is larger alone has room. In an included file and in an object at most 16Mi, which is the default there."`
	Disk   Size `yaml:"disk" default:"1Gi" doc:"Maximum size of the pending deltas on disk, those in memory included. When it is reached, overflow applies. 0: the route does not spill to disk. Needs state.dir."`
}

// Retry limits the number and the duration of attempts.
type Retry struct {
	Attempts int           `yaml:"attempts" default:"3" min:"0" doc:"Attempts after the first one for a delta that the handler failed. An event that a sink rejects is not retried."`
	Backoff  time.Duration `yaml:"backoff" default:"200ms" min:"1ms" doc:"Pause before the second attempt. It doubles with each attempt."`
	Max      time.Duration `yaml:"max" default:"30s" doc:"Maximum pause."`
	MaxAge   time.Duration `yaml:"maxAge" default:"24h" min:"1s" doc:"Time after which the events of an unavailable sink have failed."`
}

// Kind describes a kind of handler or sink, for [reference.Schema] and [reference.Reference].
type Kind struct {
	Name    string // webhook in {webhook: {url: …}}
	Doc     string // one sentence on its purpose
	Example string // the YAML below the kind
	Config  any    // a value of the decoded struct; the package comment has its tags
}

// Kinds contains all kinds of handlers and sinks.
type Kinds struct{ Handlers, Sinks []Kind }

// Limit is the maximum number of deltas of a key that a route delivers in a period.
type Limit struct {
	Key   *Expr         `yaml:"key" doc:"CEL, string, int or bool: the key that is counted. Absent: each object."`
	Every time.Duration `yaml:"every,required" min:"1s" max:"8760h" doc:"Time until a key may be delivered once more."`
	Burst int           `yaml:"burst" default:"1" min:"1" max:"1000000" doc:"Number of deliveries of a key at once after a quiet time."`
}

// Debounce delays the net change of an object until the object has not changed for a while. In YAML
// it is a duration or a DebounceForm.
type Debounce struct {
	Quiet time.Duration // 0: no delay
	Max   time.Duration // the maximum delay; 0: ten times Quiet
}

// DebounceForm is a Debounce with a maximum delay.
type DebounceForm struct {
	Quiet time.Duration `yaml:"quiet,required" min:"1ms" max:"24h" doc:"Time without a change of an object, or of the key of the route, before its net change is delivered."`
	Max   time.Duration `yaml:"max" min:"1ms" max:"24h" doc:"Maximum wait of the first change, if changes go on. Absent: ten times quiet."`
}

func (d *Debounce) unmarshal(n Node) Problems {
	if n.yaml == nil {
		return nil
	}
	var form DebounceForm
	if !n.IsZero() && n.yaml.Kind == yaml.MappingNode {
		problems := n.Decode(&form)
		*d = Debounce(form)
		return problems
	}
	var quiet decoder
	quiet.value(n, reflect.ValueOf(&form.Quiet).Elem(), tags.Of(reflect.TypeFor[DebounceForm]())[0])
	d.Quiet = form.Quiet
	return quiet.problems
}
