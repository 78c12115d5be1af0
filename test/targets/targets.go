// Package targets says which target of the Makefile runs which tests: make test, make race, make
// e2e or make soak. tools/tests runs them, and test/arch compares the tests of the guarantees with
// it.
package targets

import (
	"slices"
	"strings"
)

// The targets.
const (
	Test = "test"     // all packages at the effort fast, and Smoke
	Race = "race"     // the packages with concurrency, with the race detector
	E2E  = "e2e"      // the tests that start other processes
	All  = "test-all" // everything at the effort full
	Soak = "soak"     // hours of the tests in Slices
)

// ProcessFolders are the folders of the root module whose tests start API servers, NATS servers and
// routers, and mostly wait for them. Those that take the longest are the first ones.
var ProcessFolders = []string{"test/fleet", "test/e2e", "test/chaos", "test/image", "test/sandboxtest", "test/docs", "test/spine", "test/natstest", "test/embed"}

// ProcessModules are the modules of the same kind: they build Kubernetes, Sigstore, images and the
// programs of the measurements.
var ProcessModules = []string{"test/bench", "tools/chart", "tools/keyless", "tools/release", "tools/sandbox"}

// SmokeFolder has the tests of Smoke.
const SmokeFolder = "test/e2e"

// Smoke are the tests of SmokeFolder that make test runs too: one for each large part of the
// router. They share one API server.
var Smoke = []string{
	"TestCreateUpdateDelete", "TestRouteAddedWhileDown", "TestSinkDown", "TestGet",
	"TestStatusPatchReachesTheGuest", "TestNativePlugin", "TestReloadedRoutes", "TestDeadLetters",
	"TestRuleCrashLoop", "TestCheckAtStart", "TestRoutesOfObjects", "TestFleetPermissions",
	"TestSecretsStayOffTheDisk", "TestStopDrains",
}

// Oldest are the tests whose result depends on the API server, by the beginnings of their names:
// make e2e KUBERNETES=oldest runs them on the oldest supported version.
var Oldest = []string{
	"TestFirstList", "TestCreateUpdateDelete", "TestDeselected", "TestExisting", "TestMetadataAndIdentity", "TestPages",
	"TestChart", "TestCRDComesAndGoes", "TestOneForbidden", "TestCheckAccess", "TestGeneratedRights", "TestPulledSchemas",
	"TestSchemasOfTheCluster", "TestUnknownResources", "TestWritesThatSetOff", "TestPodEvents", "TestInPod", "TestWatches$",
	"TestGapAfterCompaction", "TestCompactedWhileDown", "TestRestartReplaysNothing", "TestDeletedWhileDown",
}

// NotOldest is a test of Oldest that the version cannot pass: it has a volume from an image, a
// field that 1.30 does not know.
const NotOldest = "^TestChartManifests$/plugins"

// OldestFolders have the tests of Oldest.
var OldestFolders = []string{"test/e2e", "test/chaos"}

// Slice is a part of make soak.
type Slice struct {
	Name   string
	Folder string
	Tests  []string
}

// Slices are the tests whose rounds find rarer defects the longer they run.
var Slices = []Slice{
	{"schedules", "test/sim", []string{"TestSchedules"}},
	{"ledger", "test/chaos", []string{"TestLedger", "TestRulesLedger"}},
	{"fleets", "test/fleet", []string{"TestLedger"}},
	{"damage", "internal/checkpoint", []string{"TestDamage"}},
	{"plugins", "pkg/plugins/process", []string{"TestKilledOverAndOver"}},
	{"guests", "pkg/plugins/wasm", []string{"TestFlatMemory"}},
}

// Processes reports whether the tests of a folder of the root module belong to make e2e.
func Processes(folder string) bool { return slices.Contains(ProcessFolders, folder) }

// withoutRace are folders, with those below them, in which the race detector finds nothing: nothing
// there is concurrent (the meter, expressions), or pkg/plugins/wasm has the same concurrency (the
// other guests), and compiling WebAssembly takes ten times as long under it.
var withoutRace = []string{"internal/cel", "internal/meter", "pkg/plugins/extism", "pkg/plugins/stdio"}

// raceInAll are folders that only make test-all runs with the race detector, which takes minutes
// for them: the concurrency of the commands is that of packages of make race, and the configuration
// has one sync.Once.
var raceInAll = []string{"internal/commands", "pkg/config"}

// Raced reports whether a target, Race or All, runs the tests of a folder with the race detector.
// imports are the imports of the package and of its tests.
func Raced(target, folder string, imports []string) bool {
	if Processes(folder) || target == Race && slices.Contains(raceInAll, folder) {
		return false // the programs that processes start are built without it
	}
	for _, f := range withoutRace {
		if folder == f || strings.HasPrefix(folder, f+"/") {
			return false
		}
	}
	return slices.ContainsFunc(imports, func(path string) bool {
		return path == "sync" || path == "sync/atomic" || path == "testing/synctest"
	})
}

// Of returns the cheapest target that runs a test of a folder of the repository.
func Of(folder, test string) string {
	for _, m := range ProcessModules {
		if folder == m || strings.HasPrefix(folder, m+"/") {
			return E2E
		}
	}
	if !Processes(folder) || folder == SmokeFolder && slices.Contains(Smoke, test) {
		return Test
	}
	return E2E
}
