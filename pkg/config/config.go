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
	State    State                 `yaml:"state" doc:"What is kept on disk."`
	Listen   Listen                `yaml:"listen" doc:"What the router listens on."`
	Schemas  string                `yaml:"schemas,path" doc:"Folder that router schema pull has saved the cluster's schemas in, for router check, test, explain and eval. A running router asks the cluster."`
	Define   map[string]Expr       `yaml:"define" doc:"CEL expressions that other expressions use by name."`
	Sources  map[string]*Source    `yaml:"sources,required" min:"1" doc:"What is watched, by name."`
	Handlers map[string]*Component `yaml:"handlers" doc:"What turns deltas into events, by name: one kind with its configuration."`
	Sinks    map[string]*Component `yaml:"sinks,required" min:"1" doc:"Where events go, by name: one kind with its configuration."`
	Routes   []*Route              `yaml:"routes,required" min:"1" doc:"Which deltas go where."`

	doc *document
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
	QPS        float32 `yaml:"qps" min:"0" doc:"Most requests per second to the API server. 0: no limit of the router's own."`
	Burst      int     `yaml:"burst" min:"0" doc:"How many requests may go out at once before qps limits them."`
}

// State configures the state on disk.
type State struct {
	Dir     string `yaml:"dir,written" doc:"Folder for what outlives the process, made if it is not there. One that every user may write to, as a tmpfs or an emptyDir, is refused: name a folder in it. Empty: nothing outlives the process."`
	MaxSize Size   `yaml:"maxSize" default:"8Gi" min:"1Mi" doc:"What the state file may grow to. Beyond it, what is new waits. All routes together may have pending half of it."`

	DeadLetters DeadLetters `yaml:"deadLetters" doc:"How long what could not be delivered is kept."`
}

// DeadLetters limits the dead letters on disk.
type DeadLetters struct {
	Max    int           `yaml:"max" default:"10000" min:"1" doc:"Most dead letters of a route. Beyond it the oldest are lost."`
	MaxAge time.Duration `yaml:"maxAge" default:"720h" min:"1s" doc:"How long a dead letter is kept."`
}

// Listen contains the addresses to listen on. An empty address is not used.
type Listen struct {
	Probes string `yaml:"probes" doc:"host:port of /healthz, /readyz and /metrics. Empty: none."`
	API    string `yaml:"api" doc:"What router status, dlq, get, resync and tap talk to: a loopback host:port, or unix:/path for a socket that only its owner may use. Empty: none."`
}

// The values of [Source].Cache.
const (
	CacheFull     = "full"     // whole objects
	CacheMetadata = "metadata" // metadata; the watch transfers no more
	CacheIdentity = "identity" // names and versions: no oldObject, no look-ups
)

// Source is a watched resource.
type Source struct {
	Node          `yaml:",self"`
	Resource      string            `yaml:"resource,required" doc:"[group/]version/resource, as in v1/pods or apps/v1/deployments."`
	Namespaces    []string          `yaml:"namespaces" min:"1" doc:"Namespaces to watch. Absent: all."`
	LabelSelector string            `yaml:"labelSelector" doc:"Kubernetes label selector."`
	FieldSelector string            `yaml:"fieldSelector" doc:"Kubernetes field selector."`
	ExcludeFields []string          `yaml:"excludeFields" doc:"Fields of the objects, as in status.conditions, that are never kept."`
	ManagedFields bool              `yaml:"managedFields" doc:"Keep metadata.managedFields."`
	Resync        time.Duration     `yaml:"resync" doc:"How often everything comes again, as sync. 0: never."`
	Cache         string            `yaml:"cache" default:"full" enum:"full metadata identity" doc:"What is kept of an object. full: all of it. metadata: its metadata, no more goes over the wire. identity: its name and version; there is no oldObject and nothing to look up."`
	Secrets       bool              `yaml:"secrets" doc:"Keep the data of v1/secrets. Else it is cut out as soon as it arrives, and so are annotations, which may hold copies of it, but for some that are known."`
	Indexes       map[string][]Expr `yaml:"indexes" doc:"By name: a CEL expression, or a list of them whose keys are joined. Its value is a key, of a list each element, of a map each key."`
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

	Node        Node     `yaml:",self"`
	Name        string   `yaml:"name,required" doc:"Name of the route, part of every event."`
	ID          string   `yaml:"id" doc:"What the state of the route is kept under. To rename a route, change its name, and set id to what it was. Absent: the name."`
	From        []string `yaml:"from" min:"1" doc:"Sources. Absent: the route gets the events of the routes that have it as a target, and its sources are theirs."`
	Ops         []string `yaml:"ops" default:"added updated deleted" enum:"added updated deleted deselected sync entered left" min:"1" doc:"What happened to the object; with when, entered and left (the default then): the condition holds, and holds no longer. Without from, the default is all."`
	Filter      *Filter  `yaml:"filter" doc:"CEL, bool: whether the route wants the delta; one expression, or one by source. Absent: every one."`
	Emit        *Expr    `yaml:"emit" doc:"CEL, a map or a list of maps: the data of the events; event(map) can say withType(text) and withSubject(text) too."`
	Key         *Expr    `yaml:"key" doc:"CEL, string, int or bool: deltas of one key stay in order. Absent: the object."`
	Handler     string   `yaml:"handler" doc:"Handler that makes the events. Absent: the delta itself is the event."`
	To          []Target `yaml:"to,required" min:"1" doc:"Targets: the names of sinks, and {route: NAME} for another route."`
	Existing    string   `yaml:"existing" default:"skip" enum:"skip deliver" doc:"Whether objects that are there at the first start are delivered, as added. With when, deliver is the default: a condition that holds already is delivered, as entered."`
	Deliver     string   `yaml:"deliver" default:"every" enum:"every latest" doc:"Every delta, or the net change per object."`
	Overflow    string   `yaml:"overflow" default:"coalesce" enum:"coalesce block dropOldest" doc:"What happens when the queue is full. coalesce: of each object the net change is kept. block: every route of the source waits; the routes that deliver to one without from do so in any case. dropOldest: the oldest delta is lost, and counted."`
	Batch       Batch    `yaml:"batch" doc:"How many deltas a handler gets at once."`
	Concurrency int      `yaml:"concurrency" default:"4" min:"1" max:"1024" doc:"How many batches are worked on at the same time."`
	Queue       Queue    `yaml:"queue" doc:"How much the route may have pending."`
	Retry       Retry    `yaml:"retry" doc:"How often and how long a delta is tried."`
	OnFailure   string   `yaml:"onFailure" default:"deadLetter" enum:"deadLetter drop pause" doc:"What becomes of a delta that failed for good. deadLetter: it is put aside, see router dlq. drop: it is lost, and counted. pause: the route waits."`

	// Further causes of a delivery.

	Watches map[string]Expr `yaml:"watches" doc:"By source: a CEL expression about its deltas. The objects that it results in, which are of the sources of from, go through the route once more, as sync."`

	// Rules about time.

	When       *Filter       `yaml:"when" doc:"CEL, bool, over object and now: a condition. The route tells when it begins to hold for an object, and when it ends; one expression, or one by source."`
	For        time.Duration `yaml:"for" min:"1s" doc:"How long the condition of when must hold until it is told as entered. With ops: deleted, how long an object must be gone."`
	Every      time.Duration `yaml:"every" min:"1s" doc:"How often it is told again, as repeat, that the condition of when still holds. Absent: once."`
	Reevaluate time.Duration `yaml:"reevaluate" min:"1s" doc:"How often when is evaluated anew for every object, whatever changes: for conditions with now."`
	Limit      *Limit        `yaml:"limit" doc:"How often a key is delivered. What is more is counted, and the next one that is delivered says how many, as suppressed. What the handler makes no event of, or fails on, does not count. With when, what is held back and still holds is delivered when the limit allows it, and left comes once for a key, when the condition holds for none of its objects."`
	Debounce   Debounce      `yaml:"debounce" doc:"How long nothing may happen to an object, or under the key of the route, until its net change is delivered."`
	MaxAge     time.Duration `yaml:"maxAge" min:"1s" doc:"How old a change may be that is delivered. What is older is a dead letter, or is dropped if onFailure says so. Absent: of any age."`
}

// Batch limits the deltas of one call of a handler.
type Batch struct {
	Size int           `yaml:"size" default:"64" min:"1" max:"10000" doc:"Most deltas of a batch."`
	Wait time.Duration `yaml:"wait" default:"10ms" max:"24h" doc:"How long a batch waits to become full: at most 1m, unless it is a group."`
	By   *Expr         `yaml:"by" doc:"CEL, string, int or bool: what names a group. A batch is of one group, and emit makes the events of all of it: objects has theirs, object is the last one."`
}

// Queue limits the backlog of a route.
type Queue struct {
	Memory int  `yaml:"memory" default:"10000" min:"1" doc:"Most deltas in memory."`
	Disk   Size `yaml:"disk" default:"1Gi" doc:"What the route may have pending on disk, in bytes, those in memory included. Beyond it, overflow decides. 0: nothing is on disk alone. Needs state.dir."`
}

// Retry limits the number and the duration of attempts.
type Retry struct {
	Attempts int           `yaml:"attempts" default:"3" min:"0" doc:"Tries after the first for a delta that the handler failed on. What a sink rejects is not tried again."`
	Backoff  time.Duration `yaml:"backoff" default:"200ms" min:"1ms" doc:"Pause before the second try; it doubles from try to try."`
	Max      time.Duration `yaml:"max" default:"30s" doc:"Longest pause."`
	MaxAge   time.Duration `yaml:"maxAge" default:"24h" min:"1s" doc:"How long an unavailable sink is tried."`
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
	Key   *Expr         `yaml:"key" doc:"CEL, string, int or bool: what is counted. Absent: each object by itself."`
	Every time.Duration `yaml:"every,required" min:"1s" max:"8760h" doc:"How long it takes until one more of a key is delivered."`
	Burst int           `yaml:"burst" default:"1" min:"1" max:"1000000" doc:"How many of a key are delivered at once after a quiet time."`
}

// Debounce delays the net change of an object until the object has not changed for a while. In YAML
// it is a duration or a DebounceForm.
type Debounce struct {
	Quiet time.Duration // 0: no delay
	Max   time.Duration // the maximum delay; 0: ten times Quiet
}

// DebounceForm is a Debounce with a maximum delay.
type DebounceForm struct {
	Quiet time.Duration `yaml:"quiet,required" min:"1ms" max:"24h" doc:"How long nothing may happen to an object, or under the key of the route, until its net change is delivered."`
	Max   time.Duration `yaml:"max" min:"1ms" max:"24h" doc:"How long the first change waits at most, if there is no quiet. Absent: ten times quiet."`
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
