package arch

// realTime lists the test files that sleep or have a real clock, and the reason. Those that import
// testing/synctest need no entry.
var realTime = map[string]string{
	"internal/fleet/parts_test.go":                  "NATS expires keys by its own clock",
	"internal/fleet/values/mirror_internal_test.go": "NATS expires keys by its own clock",
	"internal/fleet/values/values_test.go":          "NATS expires keys by its own clock",
	"internal/pipeline/queue/window_bench_test.go":  "measures the timers of the real clock",
	"internal/router/worker/services_test.go":       "NATS expires keys by its own clock",
	"internal/pipeline/rules/wallclock_test.go":     "compares the wall clock with the monotonic one",
	"pkg/plugins/process/program_internal_test.go":  "starts a process",
	"pkg/plugins/wasm/timeout_test.go":              "the guest computes for real",
	"test/child/child_test.go":                      "waits for the end of a process",
	"test/natstest/natstest_test.go":                "waits for the end of a process",
	"test/sim/reload_test.go":                       "runs in the bubble of TestSchedules",
}
