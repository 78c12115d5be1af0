// Package arch checks rules that the compiler does not: the permitted imports of each package, the
// packages that may import a heavy dependency, and some habits of the code. This file is the table,
// which rules_test.go applies.
package arch

// module is the import path of the root module, which is the prefix of the others.
const module = "github.com/deltarouter/deltarouter"

// anything permits all imports, inside and outside of this repository.
const anything = "..."

// allowed lists, for each folder with Go source, the folders of this repository that its non-test
// files may import. A folder without an entry fails: the place of new code is a decision, made
// here. An entry is not inherited by the folders that import it.
//
// A name may end in /* (one level) or /... (all levels, including the folder itself); the most
// exact name applies.
var allowed = map[string][]string{
	"internal/rawjson": {},
	"internal/transit": {},
	"pkg/event":        {"internal/rawjson", "internal/transit"},
	"pkg/authz":        {},
	"internal/metrics": {},
	"pkg/config": {
		"internal/config/files", "internal/config/scalar", "internal/config/tags", "internal/config/yamlfile", "internal/fileerr",
		"internal/similar",
	},
	"internal/cel/schema": {"internal/fileerr"},
	"internal/timer":      {},
	"internal/backoff":    {},
	"internal/circuit":    {"internal/backoff", "internal/timer"},
	"internal/lines":      {"internal/printable"},
	// Bounds the log lines of many parts for one reason.
	"internal/complaints": {},
	// Limits the CPU that the filters of an owner take from the sources.
	"internal/allowance": {"internal/timer"},
	// Foreign text, for terminals and logs.
	"internal/printable": {},
	// The goals of Go's garbage collector.
	"internal/gclimits": {},

	"internal/tlsfiles": {"pkg/config"},
	"internal/kubehttp": {},
	// Kubernetes Events on the pod of the router.
	"internal/kubestatus": {
		"internal/backoff", "internal/crds", "internal/fileerr", "internal/kubehttp", "internal/manifest", "internal/metrics",
		"internal/printable", "pkg/authz", "pkg/event", "pkg/index", "pkg/informer", "pkg/plugins",
	},

	"internal/recording": {"internal/rawjson"},
	// What happened to objects, and what routes did.
	"internal/history": {
		"internal/fileerr", "internal/history/difference", "internal/history/segment", "internal/metrics", "internal/timer", "pkg/event",
	},
	"internal/history/difference": {},
	"internal/history/excerpt":    {"internal/history", "internal/recording", "pkg/event"},
	"internal/history/fields":     {"internal/kept", "internal/printable"},
	"internal/history/segment":    {"internal/fileerr"},
	// The failed calls of guests, in dead letters.
	"internal/callrecord": {"internal/rawjson", "pkg/event"},

	"internal/config/files":     {"internal/fileerr"},
	"internal/config/yamlfile":  {"internal/config/files"},
	"internal/config/tags":      {},
	"internal/config/scalar":    {},
	"internal/config/reference": {"internal/config/scalar", "internal/config/tags", "pkg/config"},
	"internal/addresses":        {},
	"internal/fileerr":          {},
	// The folder of compiled modules, whose machine code runs outside of the sandbox.
	"internal/codefolder": {"internal/fileerr"},
	"internal/manifest":   {},
	// Errors about events that were made of an outdated state.
	"internal/outdated": {},
	"internal/similar":  {},
	"internal/outline":  {"pkg/config"},
	// The fields of objects that a handler gets.
	"internal/fields": {"internal/rawjson", "pkg/config", "pkg/event"},
	// The fields of objects that caches keep.
	"internal/kept": {"internal/rawjson"},
	// Apart from the checkpoint, whose format it is not.
	"internal/fingerprint": {"internal/rawjson"},

	"internal/cel": {
		"internal/cel/builtin", "internal/cel/celerr", "internal/cel/check", "internal/cel/cost", "internal/cel/equality",
		"internal/cel/fieldpath", "internal/cel/jsonval", "internal/cel/readset", "internal/cel/schema", "internal/cel/syntax",
		"internal/cel/typeset", "internal/kept", "internal/rawjson", "pkg/event",
	},
	// CEL in layers: each may import those above it here.
	"internal/cel/celerr":  {},
	"internal/cel/jsonval": {"internal/cel/celerr", "internal/cel/schema", "internal/rawjson"},
	"internal/cel/syntax":  {},
	"internal/cel/typeset": {
		"internal/cel/celerr", "internal/cel/jsonval", "internal/cel/schema", "internal/cel/syntax", "internal/rawjson",
		"internal/similar", "pkg/event",
	},
	"internal/cel/fieldpath": {
		"internal/cel/jsonval", "internal/cel/schema", "internal/cel/typeset", "internal/rawjson", "pkg/event",
	},
	"internal/cel/readset": {"internal/cel/fieldpath", "internal/cel/syntax", "internal/kept"},
	"internal/cel/equality": {
		"internal/cel/celerr", "internal/cel/jsonval", "internal/cel/syntax", "internal/rawjson", "pkg/event",
	},
	"internal/cel/cost": {
		"internal/cel/celerr", "internal/cel/jsonval", "internal/cel/schema", "internal/cel/syntax",
	},
	"internal/cel/builtin": {
		"internal/cel/celerr", "internal/cel/cost", "internal/cel/fieldpath", "internal/cel/jsonval", "internal/cel/schema",
		"internal/cel/syntax", "internal/cel/typeset", "internal/rawjson", "pkg/event",
	},
	"internal/cel/check": {
		"internal/cel/celerr", "internal/cel/cost", "internal/cel/fieldpath", "internal/cel/jsonval", "internal/cel/schema",
		"internal/cel/syntax", "internal/cel/typeset",
	},
	"internal/cel/explain": {
		"internal/cel", "internal/cel/celerr", "internal/cel/check", "internal/cel/equality", "internal/cel/syntax", "pkg/event",
	},

	"pkg/index":   {"internal/cel", "internal/cel/equality", "internal/metrics", "pkg/config", "pkg/event"},
	"pkg/filters": {"internal/allowance", "internal/cel", "internal/cel/equality", "internal/transit", "pkg/config", "pkg/event"},
	"internal/checkpoint": {
		"internal/backoff", "internal/checkpoint/folder", "internal/checkpoint/frame", "internal/checkpoint/statefile",
		"internal/fingerprint", "internal/rawjson", "internal/transit", "pkg/event",
	},

	"internal/checkpoint/frame": {"internal/checkpoint/statefile"},
	// The command router state.
	"internal/statecmd": {
		"internal/api", "internal/checkpoint", "internal/checkpoint/folder", "internal/cli", "internal/fileerr",
		"internal/history", "internal/printable", "pkg/config", "pkg/event", "pkg/informer",
	},
	"internal/checkpoint/folder":    {"internal/fileerr"},
	"internal/checkpoint/statefile": {"internal/checkpoint/folder", "internal/fileerr"},

	"pkg/informer": {
		"internal/backoff", "internal/kept", "internal/rawjson", "internal/timer", "pkg/authz", "pkg/config", "pkg/event",
		"pkg/informer/internal/apply", "pkg/informer/internal/client", "pkg/informer/internal/persist",
		"pkg/informer/internal/reflector", "pkg/informer/internal/wire",
	},
	"pkg/informer/internal/wire":    {"internal/rawjson", "pkg/event"},
	"pkg/informer/internal/client":  {"internal/fileerr", "internal/kubehttp", "pkg/config", "pkg/event"},
	"pkg/informer/internal/persist": {"internal/kept", "internal/transit", "pkg/event"},
	"pkg/informer/internal/reflector": {
		"internal/backoff", "pkg/event", "pkg/informer/internal/client", "pkg/informer/internal/persist",
		"pkg/informer/internal/wire",
	},
	"pkg/informer/internal/apply": {
		"internal/backoff", "internal/timer", "internal/transit", "pkg/event", "pkg/informer/internal/persist",
		"pkg/informer/internal/reflector", "pkg/informer/internal/wire",
	},

	"internal/pipeline/rules": {"internal/timer", "internal/transit", "pkg/event"},

	// A new kind of handler or sink is a folder under pkg/plugins. Kinds do not know each other.
	"pkg/plugins":        {"internal/printable", "pkg/authz", "pkg/config", "pkg/event"},
	"internal/httpsink":  {"internal/printable", "pkg/config", "pkg/event"},
	"pkg/plugins/*":      {"internal/rawjson", "pkg/config", "pkg/event", "pkg/plugins"},
	"pkg/plugins/file":   {"internal/fileerr", "pkg/config", "pkg/event", "pkg/plugins"},
	"pkg/plugins/stdout": {"internal/printable", "internal/rawjson", "pkg/config", "pkg/event", "pkg/plugins"},
	"pkg/plugins/nats": {
		"internal/complaints", "internal/httpsink", "internal/inorder", "internal/natsconn", "internal/tlsfiles", "pkg/config",
		"pkg/event", "pkg/plugins",
	},
	"pkg/plugins/kafka": {
		"internal/httpsink", "internal/inorder", "internal/tlsfiles", "pkg/config", "pkg/event", "pkg/plugins",
	},
	"pkg/plugins/otlp": {
		"internal/httpsink", "internal/otlpconn", "internal/rawjson", "internal/tlsfiles", "pkg/config", "pkg/event",
		"pkg/plugins",
	},
	"pkg/plugins/wasm": {
		"internal/fields", "pkg/config", "pkg/plugins", "pkg/plugins/internal/guest", "pkg/plugins/internal/guest/...",
	},
	"pkg/plugins/extism": {
		"internal/fields", "internal/meter", "internal/printable", "internal/rawjson", "pkg/config", "pkg/event", "pkg/plugins",
		"pkg/plugins/internal/guest", "pkg/plugins/internal/guest/...",
	},
	"pkg/plugins/stdio": {
		"internal/fields", "internal/lines", "internal/meter", "internal/rawjson", "pkg/config", "pkg/event", "pkg/plugins",
		"pkg/plugins/internal/guest", "pkg/plugins/internal/guest/...",
	},
	"pkg/plugins/js": {
		"internal/fields", "internal/fileerr", "internal/meter", "internal/printable", "internal/rawjson", "pkg/config",
		"pkg/event", "pkg/plugins", "pkg/plugins/internal/guest", "pkg/plugins/internal/guest/...",
	},
	// The guests of all kinds of handlers that are WebAssembly modules.
	"pkg/plugins/internal/guest": {
		"internal/backoff", "internal/callrecord", "internal/circuit", "internal/fields", "internal/fileerr", "pkg/config",
		"pkg/event", "pkg/plugins", "pkg/plugins/internal/guest/...",
	},
	"pkg/plugins/internal/guest/abi": {
		"internal/printable", "internal/rawjson", "pkg/config", "pkg/event", "pkg/plugins",
	},
	"pkg/plugins/internal/guest/engine": {
		"internal/callrecord", "internal/codefolder", "internal/fileerr", "internal/lines", "internal/meter",
		"internal/printable", "pkg/event", "pkg/plugins", "pkg/plugins/internal/guest/abi",
		"pkg/plugins/internal/guest/host",
	},
	"pkg/plugins/internal/guest/host": {
		"internal/addresses", "internal/callrecord", "internal/httpsink", "internal/kv", "internal/lines", "internal/meter",
		"internal/printable", "internal/rawjson", "internal/timer", "pkg/config", "pkg/event", "pkg/plugins",
		"pkg/plugins/internal/guest/abi", "pkg/plugins/internal/guest/files",
	},
	"pkg/plugins/internal/guest/files": {"internal/fileerr"},
	"pkg/plugins/internal/guest/module": {
		"internal/backoff", "internal/fields", "internal/fileerr", "internal/oci", "internal/oci/lockfile", "internal/tlsfiles",
		"pkg/config", "pkg/event", "pkg/plugins",
	},
	"internal/meter": {},
	"pkg/plugins/process": {
		"internal/backoff", "internal/fields", "internal/kv", "internal/lines", "internal/metrics", "internal/printable",
		"internal/rawjson", "internal/timer", "pkg/config", "pkg/event", "pkg/plugins", "pkg/plugins/process/...", "sdk/proto/...",
	},
	"pkg/plugins/process/internal/child": {"internal/fileerr", "internal/lines", "internal/printable"},
	"pkg/plugins/webhook": {
		"internal/cel", "internal/httpsink", "internal/inorder", "internal/metrics", "internal/rawjson", "internal/tlsfiles",
		"pkg/config", "pkg/event", "pkg/plugins",
	},
	"pkg/plugins/kubernetes": {
		"internal/httpsink", "internal/inorder", "internal/kubehttp", "internal/metrics", "internal/outdated", "internal/outline",
		"internal/rawjson", "internal/similar", "internal/timer", "pkg/authz", "pkg/config", "pkg/event", "pkg/plugins",
	},
	"internal/emit":          {"internal/cel", "pkg/event", "pkg/plugins"},
	"pkg/plugins/plugintest": {"pkg/config", "pkg/event", "pkg/plugins"},

	"internal/otlpconn": {"internal/httpsink", "internal/tlsfiles", "pkg/config", "pkg/plugins"},
	"internal/trace":    {"internal/printable", "pkg/event"},
	"internal/trace/export": {
		"internal/backoff", "internal/httpsink", "internal/metrics", "internal/otlpconn", "internal/trace", "pkg/config",
		"pkg/plugins",
	},

	"internal/inorder": {"pkg/event", "pkg/plugins"},

	// The modules of handlers in registries.
	"internal/oci":          {"internal/addresses", "internal/fileerr", "internal/printable"},
	"internal/oci/lockfile": {"internal/fileerr", "internal/oci", "pkg/config"},

	// Several processes with one configuration, over NATS JetStream.
	"internal/natsconn":    {"internal/tlsfiles", "pkg/config", "pkg/plugins"},
	"internal/fleet":       {"internal/complaints", "internal/natsconn", "internal/printable", "pkg/config"},
	"internal/fleet/fence": {"internal/backoff", "internal/fleet"},
	"internal/fleet/work": {
		"internal/checkpoint", "internal/fleet", "internal/fleet/fence", "internal/fleet/owner", "internal/pipeline/chain",
		"internal/rawjson", "internal/transit", "pkg/config", "pkg/event", "pkg/plugins",
	},
	"internal/fleet/election": {"internal/backoff", "internal/kubehttp", "internal/timer"},
	"internal/fleet/replica": {
		"internal/backoff", "internal/checkpoint", "internal/fleet", "internal/fleet/fence", "internal/metrics",
	},
	"internal/fleet/owner":   {"internal/complaints", "internal/printable"},
	"internal/fleet/roster":  {"internal/fleet"},
	"internal/fleet/consume": {"internal/complaints", "internal/fleet/owner"},

	// Services for the handlers of workers.
	"internal/fleet/lookup": {"internal/fleet", "internal/printable", "pkg/event", "pkg/plugins"},
	"internal/fleet/values": {
		"internal/backoff", "internal/fleet", "internal/kv", "internal/timer", "pkg/plugins",
	},
	"internal/fleet/deadletters": {"internal/backoff", "internal/checkpoint", "internal/fleet", "pkg/event"},

	"internal/kv": {"internal/timer", "pkg/plugins"},

	"internal/pipeline/queue": {
		"internal/pipeline/rules", "internal/rawjson", "internal/timer", "internal/trace", "internal/transit", "pkg/event",
	},
	"internal/pipeline/chain": {"internal/transit", "pkg/event"},
	"internal/pipeline/condition": {
		"internal/checkpoint", "internal/pipeline/rules", "internal/pipeline/spec", "internal/timer", "internal/transit",
		"pkg/event",
	},
	"internal/pipeline/deliver": {
		"internal/backoff", "internal/callrecord", "internal/checkpoint", "internal/circuit", "internal/complaints",
		"internal/outdated", "internal/pipeline/chain", "internal/pipeline/queue", "internal/pipeline/spec", "internal/printable",
		"internal/timer", "internal/trace", "pkg/event", "pkg/plugins",
	},
	"internal/pipeline/spec": {
		"internal/allowance", "internal/backoff", "internal/cel", "internal/metrics", "internal/pipeline/queue",
		"internal/pipeline/rules", "pkg/event", "pkg/filters", "pkg/plugins",
	},
	"internal/pipeline/route": {
		"internal/checkpoint", "internal/complaints", "internal/metrics", "internal/pipeline/chain",
		"internal/pipeline/condition", "internal/pipeline/deliver", "internal/pipeline/queue", "internal/pipeline/rules",
		"internal/pipeline/spec", "internal/timer", "internal/trace", "internal/transit", "pkg/event", "pkg/filters",
		"pkg/plugins",
	},
	"internal/pipeline": {
		"internal/checkpoint", "internal/complaints", "internal/metrics", "internal/pipeline/condition",
		"internal/pipeline/deliver", "internal/pipeline/route", "internal/pipeline/rules", "internal/pipeline/spec",
		"internal/timer", "internal/trace", "internal/transit", "pkg/event", "pkg/filters", "pkg/plugins",
	},
	"internal/api": {"internal/access", "internal/fileerr", "internal/history", "internal/metrics", "pkg/authz", "pkg/event"},
	// The rights of the users of the API, and the addresses that it listens on.
	"internal/access": {"internal/printable", "pkg/authz"},

	// From a configuration to a running router, in layers. None of them knows a kind of plugin:
	// pkg/router passes the kinds to them.
	"internal/compile": {
		"internal/cel", "internal/cel/explain", "internal/cel/schema", "internal/config/files", "internal/fileerr",
		"internal/kept", "internal/natsconn", "internal/otlpconn", "internal/outline", "internal/similar", "pkg/config",
		"pkg/event", "pkg/index", "pkg/informer", "pkg/plugins",
	},
	"internal/explain": {
		"internal/cel", "internal/cel/explain", "internal/cel/schema", "internal/compile", "internal/manifest",
		"internal/pipeline/chain", "internal/rawjson", "pkg/config", "pkg/event", "pkg/index", "pkg/informer",
	},
	"internal/rbac": {
		"internal/compile", "internal/crds", "internal/fleet", "internal/manifest", "pkg/authz", "pkg/config", "pkg/informer",
		"pkg/plugins",
	},
	"internal/check": {
		"internal/cel/schema", "internal/compile", "internal/config/files", "internal/crds", "internal/fleet", "internal/kept",
		"internal/kubestatus", "internal/kv", "internal/metrics", "internal/otlpconn", "internal/rbac", "internal/timer",
		"pkg/authz", "pkg/config", "pkg/event", "pkg/informer", "pkg/plugins",
	},
	"internal/inspect": {
		"internal/access", "internal/api", "internal/cel", "internal/cel/explain", "internal/checkpoint",
		"internal/compile", "internal/explain", "internal/fleet/lookup", "internal/history", "internal/history/excerpt", "internal/history/fields",
		"internal/kept", "internal/metrics", "internal/pipeline", "internal/pipeline/chain", "internal/pipeline/spec", "internal/rawjson",
		"internal/recording", "internal/timer", "pkg/authz", "pkg/config", "pkg/event", "pkg/index", "pkg/informer", "pkg/plugins",
	},

	// The running router. An engine moves deltas through the runtime set of a configuration; the
	// router adds the API and the file; a simulation injects changes like those of an API server.
	"internal/engine": {
		"internal/access", "internal/allowance", "internal/api", "internal/cel", "internal/checkpoint",
		"internal/codefolder", "internal/compile", "internal/fileerr", "internal/fingerprint", "internal/fleet/fence",
		"internal/fleet/work", "internal/history", "internal/inspect", "internal/kv", "internal/metrics",
		"internal/pipeline", "internal/pipeline/spec", "internal/timer", "internal/tlsfiles", "pkg/config", "pkg/event",
		"pkg/filters", "pkg/index", "pkg/informer", "pkg/plugins",
	},
	"internal/router/worker": {
		"internal/api", "internal/backoff", "internal/checkpoint", "internal/compile", "internal/config/files",
		"internal/engine", "internal/fleet", "internal/fleet/consume", "internal/fleet/deadletters",
		"internal/fleet/lookup", "internal/fleet/owner", "internal/fleet/roster", "internal/fleet/values",
		"internal/fleet/work", "internal/inspect", "internal/metrics", "internal/oci/lockfile", "internal/pipeline",
		"internal/pipeline/spec", "internal/timer", "pkg/config", "pkg/event", "pkg/informer", "pkg/plugins",
	},
	"internal/router": {
		"internal/access", "internal/allowance", "internal/api", "internal/checkpoint", "internal/compile",
		"internal/config/files", "internal/engine", "internal/fileerr", "internal/fleet", "internal/fleet/deadletters",
		"internal/fleet/election", "internal/fleet/fence", "internal/fleet/lookup", "internal/fleet/replica",
		"internal/fleet/roster", "internal/fleet/work", "internal/history", "internal/inspect", "internal/kubestatus", "internal/metrics",
		"internal/oci/lockfile", "internal/pipeline", "internal/printable", "internal/timer", "internal/tlsfiles",
		"internal/trace", "internal/trace/export", "pkg/config", "pkg/event", "pkg/informer", "pkg/plugins",
	},
	"internal/simulate": {
		"internal/checkpoint", "internal/compile", "internal/config/files", "internal/engine", "internal/inspect",
		"internal/kept", "internal/metrics", "internal/pipeline", "internal/pipeline/deliver", "internal/pipeline/spec",
		"internal/rawjson", "internal/recording", "internal/timer", "pkg/config", "pkg/event", "pkg/informer",
		"pkg/plugins",
	},
	// For authors of handlers: one handler alone, and the build of its source.
	"internal/solo": {
		"internal/callrecord", "internal/compile", "internal/explain", "internal/kv", "internal/manifest", "internal/metrics",
		"internal/rawjson", "internal/recording", "internal/timer", "pkg/config", "pkg/event", "pkg/informer", "pkg/plugins",
	},
	"internal/toolchain": {"internal/fileerr"},
	// The commands of router plugin that need no source code.
	"internal/plugincmd": {
		"internal/callrecord", "internal/cli", "internal/compile", "internal/fields", "internal/fileerr", "internal/oci",
		"internal/oci/lockfile", "internal/recording", "internal/solo", "pkg/event", "pkg/plugins",
	},
	"internal/backtest": {"internal/cel", "internal/printable", "internal/recording", "internal/simulate", "pkg/event"},
	"internal/cases":    {"internal/compile", "internal/fileerr", "internal/simulate", "pkg/config", "pkg/event"},
	"internal/cli": {
		"internal/api", "internal/codefolder", "internal/config/files", "internal/fileerr", "internal/manifest",
		"internal/printable", "internal/remote", "internal/similar", "pkg/config",
	},
	// The way from the command line to a router in a cluster.
	"internal/remote":  {"internal/api", "internal/fileerr", "internal/kubehttp"},
	"internal/version": {},
	// The output of router get.
	"internal/listing": {"internal/api", "internal/manifest", "internal/printable", "internal/similar"},
	// The output of router crds.
	"internal/crds": {"internal/config/scalar", "internal/config/tags", "internal/manifest", "pkg/config"},
	// Templates that the router writes out, and the sources of the SDKs beside them.
	"internal/scaffold": {"internal/fileerr", "internal/similar", "sdk"},
	"sdk":               {},
	"internal/commands": {
		"internal/api", "internal/backoff", "internal/backtest", "internal/cases", "internal/check", "internal/checkpoint", "internal/cli", "internal/compile",
		"internal/config/reference", "internal/crds", "internal/emit", "internal/explain", "internal/fileerr",
		"internal/gclimits", "internal/history/fields", "internal/lines", "internal/listing", "internal/plugincmd",
		"internal/printable", "internal/rawjson", "internal/rbac", "internal/recording", "internal/remote", "internal/router", "internal/router/worker", "internal/scaffold",
		"internal/simulate", "internal/statecmd", "internal/toolchain", "internal/version", "pkg/config", "pkg/informer",
		"pkg/plugins",
	},
	// The program, and its list of kinds.
	"pkg/plugins/all": {"pkg/plugins", "pkg/plugins/*"},
	"pkg/router":      {"internal/cli", "internal/commands", "pkg/plugins"},
	"cmd/router":      {"pkg/plugins/all", "pkg/router"},

	// The SDK of native plugins shares the generated code with the router, and nothing else.
	"sdk/proto/...":   {},
	"sdk/process/...": {"sdk/proto/...", "sdk/process/..."},

	// Separate modules. The author of a plugin gets the SDK without any part of the router.
	"sdk/go/...": {"sdk/go/..."},
	"examples/embed/...": {
		"pkg/config", "pkg/event", "pkg/filters", "pkg/index", "pkg/informer", "pkg/plugins", "pkg/plugins/all", "pkg/router",
	},
	"examples/plugins/...": {"sdk/go/...", "sdk/process/..."},
	"sdk/conformance/...":  {"sdk/go/..."},
	"tools/sandbox/...":    {"tools/sandbox/..."},
	"test/...":             {anything},
	"tools/keyless/...":    {"internal/oci", "internal/oci/lockfile"},
	"tools/...":            {},
	"tools/tests":          {"test/targets"},
	"tools/monitoring":     {"internal/metrics"},
}

// homes lists the packages that may import a heavy dependency. .golangci.yml has the same list for
// editors, with the reasons; a test compares them. Programs beside the router are exempt unless
// depguard restricts them.
var homes = map[string][]string{
	"github.com/google/cel-go": {"internal/cel/..."},
	"k8s.io/apiserver":         {"internal/cel/..."},
	"github.com/tetratelabs/wazero": {
		"pkg/plugins/internal/guest/...", "pkg/plugins/extism", "pkg/plugins/js", "pkg/plugins/stdio",
	},
	"github.com/hashicorp/go-plugin": {"pkg/plugins/process"},
	"k8s.io/client-go": {
		"internal/kubehttp", "internal/listing", "internal/remote", "pkg/informer/...", "pkg/index",
		"pkg/plugins/kubernetes",
	},
	"go.etcd.io/bbolt":                    {"internal/checkpoint/..."},
	"github.com/nats-io":                  {"pkg/plugins/nats", "internal/natsconn", "internal/fleet/..."},
	"github.com/twmb/franz-go":            {"pkg/plugins/kafka"},
	"go.opentelemetry.io":                 {"internal/otlpconn", "internal/trace/export", "pkg/plugins/otlp"},
	"oras.land/oras-go":                   {"internal/oci"},
	"gopkg.in/yaml.v3":                    {"pkg/config", "internal/config/yamlfile"},
	"sigs.k8s.io/yaml":                    {"internal/manifest"},
	"github.com/prometheus/client_golang": {"internal/metrics", "internal/api"},
	"github.com/tidwall":                  {},
	"github.com/pkg/errors":               {},
}
