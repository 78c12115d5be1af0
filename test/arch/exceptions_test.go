package arch

// exception permits a figure above its bound, with a reason.
type exception struct {
	most   int
	reason string
}

// exceptions lists the figures above a bound of structure_test.go. An entry that is not needed any
// more fails and must be removed.
var exceptions = map[string]exception{
	"exported names under pkg/":           {233, "the sections of the configuration, fragments, and categories of errors"},
	"files pkg/config":                    {15, "one file per section of the configuration"},
	"files cmd/router":                    {20, "one file per command"},
	"files internal/checkpoint":           {16, "one file per part of the state, and for reading and writing"},
	"files internal/compile":              {17, "one file per part of a plan, and per kind of advice"},
	"files internal/router":               {15, "one file per part of the running router"},
	"methods internal/checkpoint.DB":      {34, "each part of the state has its reads and writes, in one file"},
	"fields pkg/config.Route":             {30, "the keys of a route"},
	"fields internal/metrics.Metrics":     {41, "one field per metric"},
	"methods internal/pipeline.Pipeline":  {31, "one per question or request about a route"},
	"fields internal/pipeline/spec.Route": {35, "the keys of a route"},
}

// realTime lists the test files that sleep or have a real clock, and the reason. Those that import
// testing/synctest need no entry.
var realTime = map[string]string{
	"internal/fleet/parts_test.go":                  "NATS expires keys by its own clock",
	"internal/fleet/values/mirror_internal_test.go": "NATS expires keys by its own clock",
	"internal/fleet/values/values_test.go":          "NATS expires keys by its own clock",
	"internal/pipeline/queue/window_bench_test.go":  "measures the timers of the real clock",
	"internal/router/worker/services_test.go":       "NATS expires keys by its own clock",
	"internal/rules/wallclock_test.go":              "compares the wall clock with the monotonic one",
	"pkg/plugins/process/program_internal_test.go":  "starts a process",
	"pkg/plugins/wasm/timeout_test.go":              "the guest computes for real",
	"test/child/child_test.go":                      "waits for the end of a process",
	"test/natstest/natstest_test.go":                "waits for the end of a process",
	"test/sim/reload_test.go":                       "runs in the bubble of TestSchedules",
}
