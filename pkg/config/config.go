package config

import "time"

// Config is the whole configuration, defaults filled in. It is not modified after [Load].
type Config struct {
	Hash     string                `yaml:"-"` // of the file: two configurations with one hash are the same text
	Version  int                   `yaml:"version,required" min:"1" max:"1" doc:"Version of this format: 1."`
	Cluster  Cluster               `yaml:"cluster" doc:"The cluster whose changes are routed."`
	State    State                 `yaml:"state" doc:"What is kept on disk."`
	Listen   Listen                `yaml:"listen" doc:"What the router listens on."`
	Schemas  string                `yaml:"schemas,path" doc:"Folder that router schema pull has saved the cluster's schemas in, for router check, test, explain and eval. A running router asks the cluster."`
	Plugins  Plugins               `yaml:"plugins" doc:"Which programs handlers may run."`
	Define   map[string]Expr       `yaml:"define" doc:"CEL expressions that other expressions use by name."`
	Sources  map[string]*Source    `yaml:"sources,required" min:"1" doc:"What is watched, by name."`
	Handlers map[string]*Component `yaml:"handlers" doc:"What turns deltas into events, by name: one kind with its configuration."`
	Sinks    map[string]*Component `yaml:"sinks,required" min:"1" doc:"Where events go, by name: one kind with its configuration."`
	Routes   []*Route              `yaml:"routes,required" min:"1" doc:"Which deltas go where."`
}

// Cluster says how to reach the API server.
type Cluster struct {
	Name       string  `yaml:"name" default:"default" doc:"Name of the cluster, part of every event."`
	Kubeconfig string  `yaml:"kubeconfig,path" doc:"Kubeconfig file. Empty: $KUBECONFIG, in-cluster, ~/.kube/config."`
	Context    string  `yaml:"context" doc:"Context of the kubeconfig. Empty: its current context."`
	QPS        float32 `yaml:"qps" min:"0" doc:"Most requests per second to the API server. 0: no limit of the router's own."`
	Burst      int     `yaml:"burst" min:"0" doc:"How many requests may go out at once before qps limits them."`
}

// State says what is kept on disk.
type State struct {
	Dir     string `yaml:"dir,path" doc:"Folder for what outlives the process. Empty: nothing does."`
	MaxSize Size   `yaml:"maxSize" default:"8Gi" min:"1Mi" doc:"What the state file may grow to. Beyond it, what is new waits. All routes together may owe half of it."`

	DeadLetters DeadLetters `yaml:"deadLetters" doc:"How long what could not be delivered is kept."`
}

// DeadLetters bounds what is kept of the deltas that could not be delivered.
type DeadLetters struct {
	Max    int           `yaml:"max" default:"10000" min:"1" doc:"Most dead letters of a route. Beyond it the oldest are lost."`
	MaxAge time.Duration `yaml:"maxAge" default:"720h" min:"1s" doc:"How long a dead letter is kept."`
}

// Plugins says which programs handlers may run.
type Plugins struct {
	Dirs []string `yaml:"dirs,path" doc:"Folders of the programs that handlers of the kind process run. Absent: they run none."`
}

// Listen holds the addresses to listen on; an empty one is not listened on.
type Listen struct {
	Probes string `yaml:"probes" doc:"host:port of /healthz, /readyz and /metrics. Empty: none."`
	API    string `yaml:"api" doc:"What router dlq, get, resync and tap talk to: a loopback host:port, or unix:/path for a socket that only its owner may use. Empty: none."`
}

// The values of [Source].Cache.
const (
	CacheFull     = "full"     // the objects
	CacheMetadata = "metadata" // their metadata; no more goes over the wire
	CacheIdentity = "identity" // their names and versions: no oldObject, no lookup
)

// Source is something that is watched.
type Source struct {
	Node          `yaml:",self"`
	Resource      string            `yaml:"resource,required" doc:"[group/]version/resource, as in v1/pods or apps/v1/deployments."`
	Namespaces    []string          `yaml:"namespaces" min:"1" doc:"Namespaces to watch. Absent: all."`
	LabelSelector string            `yaml:"labelSelector" doc:"Kubernetes label selector."`
	FieldSelector string            `yaml:"fieldSelector" doc:"Kubernetes field selector."`
	Drop          []string          `yaml:"drop" doc:"Fields of the objects, as in status.conditions, that are never kept."`
	ManagedFields bool              `yaml:"managedFields" doc:"Keep metadata.managedFields."`
	Resync        time.Duration     `yaml:"resync" doc:"How often everything comes again, as sync. 0: never."`
	Cache         string            `yaml:"cache" default:"full" enum:"full metadata identity" doc:"What is kept of an object. full: all of it. metadata: its metadata, no more goes over the wire. identity: its name and version; there is no oldObject and nothing to look up."`
	Secrets       bool              `yaml:"secrets" doc:"Keep the data of v1/secrets. Else it is cut out as soon as it arrives."`
	Indexes       map[string][]Expr `yaml:"indexes" doc:"By name: a CEL expression, or a list of them whose keys are joined. Its value is a key, of a list each element, of a map each key."`
}

// Component is a handler or a sink: one kind and its configuration, as in {webhook: {url: …}}.
type Component struct {
	Node   Node   // the component as a whole
	Kind   string // webhook
	Config Node   // {url: …}
}

// The values of [Route].Existing, Deliver, Overflow and OnFailure.
const (
	ExistingSkip    = "skip"    // objects that are there already are not delivered
	ExistingDeliver = "deliver" // they come once, as added and initial

	DeliverEvery  = "every"  // every delta
	DeliverLatest = "latest" // the net change per object since it was last delivered

	OverflowFold       = "fold"       // a full queue keeps the net change per object
	OverflowBlock      = "block"      // a full queue slows every route of the source
	OverflowDropOldest = "dropOldest" // a full queue loses its oldest delta

	OnFailureDeadLetter = "deadLetter" // a delta that failed for good is put aside
	OnFailureDrop       = "drop"       // it is lost
	OnFailurePause      = "pause"      // the route waits
)

// Route says which deltas go where, and how.
type Route struct {
	// FedBy has the routes whose events this one gets, in the order of the configuration; From has their sources then. It is not decoded:
	// whoever knows the kinds of sinks fills it in.
	FedBy []string `yaml:"-"`

	Node        Node     `yaml:",self"`
	Name        string   `yaml:"name,required" doc:"Name of the route, part of every event."`
	Was         string   `yaml:"was" doc:"Name that the route had before: it takes over what is owed under that name."`
	From        []string `yaml:"from" min:"1" doc:"Sources. Absent: the route gets the events of those that name it in a sink of the kind route, and its sources are theirs."`
	On          []string `yaml:"on" default:"added updated deleted" enum:"added updated deleted deselected sync entered left" min:"1" doc:"What happened to the object; with when, entered and left (the default then): the condition holds, and holds no longer. Without from, the default is all."`
	Filter      *Filter  `yaml:"filter" doc:"CEL, bool: whether the route wants the delta; one expression, or one by source. Absent: every one."`
	Emit        *Expr    `yaml:"emit" doc:"CEL, a map or a list of maps: the data of the events; event(map) can say withType(text) and withSubject(text) too."`
	Key         *Expr    `yaml:"key" doc:"CEL, string, int or bool: deltas of one key stay in order. Absent: the object."`
	Handle      string   `yaml:"handle" doc:"Handler that makes the events. Absent: the delta itself is the event."`
	To          []string `yaml:"to,required" min:"1" doc:"Sinks."`
	Existing    string   `yaml:"existing" default:"skip" enum:"skip deliver" doc:"Whether objects that are there at the first start are delivered, as added."`
	Deliver     string   `yaml:"deliver" default:"every" enum:"every latest" doc:"Every delta, or the net change per object."`
	Overflow    string   `yaml:"overflow" default:"fold" enum:"fold block dropOldest" doc:"What happens when the queue is full. fold: of each object the net change is kept. block: every route of the source waits; the routes that feed one without from do so in any case. dropOldest: the oldest delta is lost, and counted."`
	Batch       Batch    `yaml:"batch" doc:"How many deltas a handler gets at once."`
	Concurrency int      `yaml:"concurrency" default:"4" min:"1" max:"1024" doc:"How many batches are worked on at the same time."`
	Queue       Queue    `yaml:"queue" doc:"How much the route may owe."`
	Retry       Retry    `yaml:"retry" doc:"How often and how long a delta is tried."`
	OnFailure   string   `yaml:"onFailure" default:"deadLetter" enum:"deadLetter drop pause" doc:"What becomes of a delta that failed for good. deadLetter: it is put aside, see router dlq. drop: it is lost, and counted. pause: the route waits."`

	// What else brings it about.

	Requeue map[string]Expr `yaml:"requeue" doc:"By source: a CEL expression about its deltas. The objects that it results in, which are of the sources of from, go through the route once more, as sync."`

	// Rules about time.

	When     *Filter       `yaml:"when" doc:"CEL, bool, over object and now: a condition. The route tells when it begins to hold for an object, and when it ends; one expression, or one by source."`
	For      time.Duration `yaml:"for" min:"1s" doc:"How long the condition of when must hold until it is told as entered. With on: deleted, how long an object must be gone."`
	Every    time.Duration `yaml:"every" min:"1s" doc:"How often it is told again, as repeat, that the condition of when still holds. Absent: once."`
	Check    time.Duration `yaml:"check" min:"1s" doc:"How often when is evaluated anew for every object, whatever changes: for conditions with now."`
	Limit    *Limit        `yaml:"limit" doc:"How often a key is delivered. What is more is counted, and the next one that is delivered says how many, as suppressed. What the handler makes no event of does not count. What tells that a condition ended is always delivered."`
	Debounce Debounce      `yaml:"debounce" doc:"How long nothing may happen to an object, or under the key of the route, until its net change is delivered."`
	MaxAge   time.Duration `yaml:"maxAge" min:"1s" doc:"How old a change may be that is delivered. What is older is a dead letter, or is dropped if onFailure says so. Absent: of any age."`
}

// Batch bounds what a handler gets at once.
type Batch struct {
	Size int           `yaml:"size" default:"64" min:"1" max:"10000" doc:"Most deltas of a batch."`
	Wait time.Duration `yaml:"wait" default:"10ms" max:"24h" doc:"How long a batch waits to become full: at most 1m, unless it is a group."`
	By   *Expr         `yaml:"by" doc:"CEL, string, int or bool: what names a group. A batch is of one group, and emit makes the events of all of it: objects has theirs, object is the last one."`
}

// Queue bounds what a route owes.
type Queue struct {
	Memory int  `yaml:"memory" default:"10000" min:"1" doc:"Most deltas in memory."`
	Disk   Size `yaml:"disk" default:"1Gi" doc:"What the route may owe on disk, in bytes, those in memory included. Beyond it, overflow decides. 0: nothing is on disk alone. Needs state.dir."`
}

// Retry says how often and how long a delta is tried.
type Retry struct {
	Attempts int           `yaml:"attempts" default:"3" min:"0" doc:"Tries after the first for a delta that was rejected."`
	Backoff  time.Duration `yaml:"backoff" default:"200ms" min:"1ms" doc:"Pause before the second try; it doubles from try to try."`
	Max      time.Duration `yaml:"max" default:"30s" doc:"Longest pause."`
	MaxAge   time.Duration `yaml:"maxAge" default:"24h" min:"1s" doc:"How long an unavailable sink is tried."`
}
