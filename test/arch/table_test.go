// Package arch checks the rules of the house that a compiler does not: who imports whom, where each heavy dependency lives, and
// some habits of the code. This file is the table, rules_test.go applies it.
package arch

// module is the import path of the root module; the modules below it share its prefix.
const module = "github.com/deltarouter/deltarouter"

// anything allows a folder every import, of ours and of others.
const anything = "..."

// allowed lists, for each folder with Go source, the folders of ours that its non-test files may import. A folder that is not here
// fails: where something new belongs is a decision, and it is taken here. Nothing is said twice: what a folder may import is not
// inherited from what it imports.
//
// A name may end in /* (one level) or /... (all levels, the folder itself included); the most exact name counts.
var allowed = map[string][]string{
	"pkg/rawjson": {},
	"pkg/event":   {"pkg/rawjson"},
	"pkg/metrics": {},
	"pkg/config":  {},
	"pkg/schema":  {},
	"pkg/timer":   {},
	"pkg/lines":   {},

	"pkg/tlsfiles": {"pkg/config"},

	"pkg/recording": {"pkg/rawjson"},

	"pkg/expr":       {"pkg/event", "pkg/rawjson", "pkg/schema"},
	"pkg/index":      {"pkg/event", "pkg/config", "pkg/expr", "pkg/metrics"},
	"pkg/filters":    {"pkg/event", "pkg/config", "pkg/expr"},
	"pkg/informer":   {"pkg/event", "pkg/config", "pkg/rawjson", "pkg/metrics", "pkg/timer"},
	"pkg/checkpoint": {"pkg/event"},
	"pkg/rules":      {"pkg/event", "pkg/timer"},

	// A new kind of handler or sink is a folder under pkg/plugins, and no kind knows another.
	"pkg/plugins":            {"pkg/event", "pkg/config", "pkg/metrics", "pkg/timer"},
	"pkg/plugins/*":          {"pkg/plugins", "pkg/event", "pkg/config", "pkg/metrics", "pkg/rawjson"},
	"pkg/plugins/nats":       {"pkg/plugins", "pkg/event", "pkg/config", "pkg/tlsfiles"},
	"pkg/plugins/kafka":      {"pkg/plugins", "pkg/event", "pkg/config", "pkg/tlsfiles"},
	"pkg/plugins/otlp":       {"pkg/plugins", "pkg/event", "pkg/config", "pkg/rawjson", "pkg/tlsfiles"},
	"pkg/plugins/wasm":       {"pkg/plugins", "pkg/event", "pkg/config", "pkg/metrics", "pkg/rawjson", "pkg/timer", "pkg/lines", "pkg/plugins/wasm/meter"},
	"pkg/plugins/wasm/meter": {},
	"pkg/plugins/process":    {"pkg/plugins", "pkg/event", "pkg/config", "pkg/metrics", "pkg/rawjson", "pkg/timer", "pkg/lines", "proto/..."},
	"pkg/plugins/webhook":    {"pkg/plugins", "pkg/event", "pkg/config", "pkg/metrics", "pkg/rawjson", "pkg/expr", "pkg/tlsfiles"},
	"pkg/plugins/kubernetes": {"pkg/plugins", "pkg/event", "pkg/config", "pkg/metrics", "pkg/rawjson", "pkg/timer"},
	"pkg/plugins/emit":       {"pkg/plugins", "pkg/event", "pkg/config", "pkg/metrics", "pkg/rawjson", "pkg/expr"},
	"pkg/plugins/plugintest": {"pkg/plugins", "pkg/event", "pkg/config"},

	"pkg/kv": {"pkg/plugins", "pkg/timer"},

	"pkg/pipeline": {"pkg/event", "pkg/filters", "pkg/plugins", "pkg/checkpoint", "pkg/metrics", "pkg/expr", "pkg/timer", "pkg/rules"},
	"pkg/api":      {"pkg/event", "pkg/metrics"},

	// The composition root knows every package, but no kind of plugin: those are handed to it by cmd/router.
	"internal/app": {
		"pkg/rawjson", "pkg/event", "pkg/metrics", "pkg/config", "pkg/expr", "pkg/index", "pkg/filters", "pkg/informer",
		"pkg/checkpoint", "pkg/plugins", "pkg/pipeline", "pkg/api", "pkg/kv", "pkg/schema", "pkg/timer", "pkg/recording",
	},
	"internal/cases": {"internal/app", "pkg/config", "pkg/event"},
	"cmd/router":     {"internal/app", "internal/cases", "pkg/api", "pkg/config", "pkg/plugins", "pkg/plugins/*", "pkg/recording"},

	// What the author of a native plugin gets: it shares the generated code with the router, and nothing else.
	"proto/...":       {},
	"sdk/process/...": {"sdk/process/...", "proto/..."},

	// Modules of their own. A plugin's author gets the SDK and nothing of the router with it.
	"sdk/go/...":           {"sdk/go/..."},
	"examples/plugins/...": {"sdk/go/...", "sdk/process/..."},
	"sdk/conformance/...":  {"sdk/go/..."},
	"sandbox/...":          {"sandbox/..."},
	"bench/...":            {anything},
	"test/...":             {anything},
	"hack/...":             {},
	"tools/...":            {},
}

// homes lists where a heavy dependency may be imported. The reasons stand in .golangci.yml, which says the same in the editor; a
// test keeps the two alike. Programs beside the router are free, unless depguard says otherwise.
var homes = map[string][]string{
	"github.com/google/cel-go":            {"pkg/expr"},
	"k8s.io/apiserver":                    {"pkg/expr"},
	"github.com/tetratelabs/wazero":       {"pkg/plugins/wasm"},
	"github.com/hashicorp/go-plugin":      {"pkg/plugins/process"},
	"k8s.io/client-go":                    {"pkg/informer", "pkg/index", "pkg/plugins/kubernetes"},
	"go.etcd.io/bbolt":                    {"pkg/checkpoint"},
	"github.com/nats-io":                  {"pkg/plugins/nats"},
	"github.com/twmb/franz-go":            {"pkg/plugins/kafka"},
	"go.opentelemetry.io":                 {"pkg/plugins/otlp"},
	"gopkg.in/yaml.v3":                    {"pkg/config"},
	"sigs.k8s.io/yaml":                    {"pkg/config"},
	"github.com/prometheus/client_golang": {"pkg/metrics", "pkg/api"},
	"github.com/tidwall":                  {},
	"github.com/pkg/errors":               {},
}
