# Needs Go and make; the tests use a C compiler if one is installed. `make` lists the targets.

# Every folder with a go.mod is a separate module; tools/ only pins programs.
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './bin/*' -not -path '*/testdata/*' -not -path '*/node_modules/*')))
CODE    := $(filter-out ./tools,$(MODULES))

VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 20s

# Leaves out the trace pages of grpc, whose templates would make the router 9 MB larger: see
# docs/RATIONALE.md. The router is also built in hack/release, test/routertest, bench and .ci/run.
TAGS := grpcnotrace

GOLANGCI_VERSION := $(shell awk '$$1 == "github.com/golangci/golangci-lint/v2" { print $$2 }' tools/go.mod)
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)

# $(call each,MODULES,COMMAND) runs the command in each module, continues after a failure, and fails
# if one failed.
each = @failed=; for m in $(1); do echo "--- $@ $$m"; (cd $$m && $(2)) || failed="$$failed $$m"; done; \
	[ -z "$$failed" ] || { echo "$@ failed in:$$failed" >&2; exit 1; }

.PHONY: help run build router jsengine keyless python image release release-check vulncheck plugins plugins-go plugins-checked-in test test-versions e2e chaos fleet fleet-ledger fleet-report arch bench pgo footprint fuzz fmt fmt-check tidy tidy-check generate lint check clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile

run: router plugins-go bin/sandbox ## run config.yaml on a temporary cluster, or with CLUSTER=current on the current kubeconfig context
	@bash hack/run.sh

build: router plugins bin/sandbox ## build bin/router, bin/sandbox and the example plugins

router: jsengine ## build bin/router alone
	@CGO_ENABLED=0 sh hack/progress.sh bin/router go build -trimpath -tags $(TAGS) -ldflags '-s -w -X main.version=$(VERSION)' -o bin/router ./cmd/router

jsengine: # the engine of JavaScript handlers, where npm is installed
	@sh hack/jsengine.sh

keyless: ## build bin/keyless, which verifies keyless signatures and writes plugins.lock
	@CGO_ENABLED=0 sh hack/progress.sh bin/keyless go build -C keyless -trimpath -ldflags '-s -w' -o ../bin/keyless .

python: ## fetch CPython for examples/plugins/command-python, where npm is installed
	@sh hack/python.sh

image: jsengine ## build the container image, dist/image, as an OCI layout for linux/amd64 and linux/arm64
	go -C hack/release run . image -out $(CURDIR)/dist/image

release: jsengine ## build the artifacts of a release, dist/release: archives, SBOMs, chart, image, checksums
	go -C hack/release run . release -out $(CURDIR)/dist/release

release-check: release ## build the release again, in a clone of the last commit, and compare the checksums
	@[ -z "$$(git status --porcelain)" ] || { echo "release-check: commit your changes first: the clone has only commits" >&2; exit 1; }
	@clone=$$(mktemp -d) && trap 'rm -rf "$$clone"' EXIT && git clone -q . "$$clone/clone" && \
	{ [ ! -f pkg/plugins/js/engine/quickjs.wasm ] || cp pkg/plugins/js/engine/quickjs.wasm "$$clone/clone/pkg/plugins/js/engine/"; } && \
	go -C "$$clone/clone/hack/release" run . release -version "$(VERSION)" -out $(CURDIR)/dist/again && \
	cmp dist/release/checksums.txt dist/again/checksums.txt

vulncheck: bin/govulncheck ## look for known vulnerabilities, where Go's database of them can be reached
	@sh hack/vulncheck.sh $(CURDIR)/bin/govulncheck

bin/govulncheck: tools/go.mod
	@CGO_ENABLED=0 go build -C tools -trimpath -o ../$@ golang.org/x/vuln/cmd/govulncheck
	@touch $@ # go leaves the file unchanged if only other modules changed

plugins: ## build examples/plugins into bin/plugins, and compare with the checked-in modules
	@sh hack/guests.sh

plugins-go: # examples/plugins with Go's compiler only: other languages use the checked-in modules
	@sh hack/guests.sh go-only

plugins-checked-in: ## rebuild the checked-in modules: Rust, C and AssemblyScript
	@sh hack/guests.sh checked-in

# A file, not a phony target: go needs seconds to check thousands of packages of Kubernetes for
# changes.
bin/sandbox: $(shell find sandbox -name '*_test.go' -prune -o -type f -print)
	@echo "bin/sandbox is a Kubernetes API server with its etcd; the first build takes some minutes"
	@CGO_ENABLED=0 sh hack/progress.sh bin/sandbox go build -C sandbox -ldflags '-s -w' -o ../bin/sandbox .
	@touch $@ # go leaves the file unchanged after changes of comments or times

# The oldest Kubernetes that can be built from published Go modules. sandbox/oldest.mod is not in
# MODULES: `go mod tidy` does not know it. The tag selects the code for its API.
bin/sandbox-oldest: $(shell find sandbox -name '*_test.go' -prune -o -type f -print)
	@echo "bin/sandbox-oldest is a Kubernetes API server; the first build takes some minutes"
	@CGO_ENABLED=0 sh hack/progress.sh $@ go build -C sandbox -modfile=oldest.mod -tags kubernetes130 -ldflags '-s -w' -o ../$@ .
	@touch $@ # go leaves the file unchanged after changes of comments or times

# The tests whose result depends on the API server, without the race detector. The skipped case has a
# volume from an image, a field that 1.30 does not know.
VERSION_TESTS := TestFirstList|TestCreateUpdateDelete|TestDeselected|TestExisting|TestMetadataAndIdentity|TestPages|TestChart|TestCRDComesAndGoes|TestOneForbidden|TestCheckAccess|TestGeneratedRights|TestPulledSchemas|TestSchemasOfTheCluster|TestUnknownResources|TestWritesThatSetOff|TestPodEvents|TestInPod|TestWatches$$|TestGapAfterCompaction|TestCompactedWhileDown|TestRestartReplaysNothing|TestDeletedWhileDown
test-versions: bin/sandbox-oldest ## run the tests that depend on the API server on the oldest supported one
	SANDBOX=$(CURDIR)/bin/sandbox-oldest CGO_ENABLED=0 go test -trimpath -count=1 -timeout 30m -run '^($(VERSION_TESTS))' \
		-skip '^TestChartManifests$$/plugins' ./test/e2e ./test/chaos

test: build python ## run the tests of all modules, with the race detector where cgo works
	@sh hack/test.sh $(CODE)

e2e: build ## run the tests against the sandbox alone
	go test -count=1 -timeout 30m ./test/e2e/... ./test/chaos/...

CHAOS ?= 20
chaos: build ## run the tests that kill, cut off and damage, CHAOS (20) times as long
	CHAOS=$(CHAOS) go test -count=1 -timeout 3h ./test/chaos/...
	CHECKPOINT_DAMAGE=2000 go test -count=1 -run Damage ./internal/checkpoint

fleet: router bin/sandbox ## start a fleet on a sandbox, end its processes one after another, and print an account
	@CGO_ENABLED=0 go run -trimpath ./test/fleet/demo

FLEET_ROUNDS ?= 1000
FLEET_FLEETS ?= 3
fleet-ledger: bin/sandbox ## disturb FLEET_FLEETS (3) fleets in FLEET_ROUNDS (1000) rounds, and compare all deliveries
	FLEET_ROUNDS=$(FLEET_ROUNDS) FLEET_FLEETS=$(FLEET_FLEETS) CGO_ENABLED=0 go test -trimpath -count=1 -v -parallel $(FLEET_FLEETS) -timeout 12h -run '^TestLedger$$' ./test/fleet

REPORT_ROUNDS ?= 3
fleet-report: router bin/sandbox ## measure a fleet: REPORT_ROUNDS (3) takeovers, replication, a hop to a worker, scaling, and the cost without a fleet
	@uptime
	@CGO_ENABLED=0 go run -trimpath ./test/fleet/report -rounds $(REPORT_ROUNDS)
	@CGO_ENABLED=0 go -C bench run -trimpath . -only fleet,hop,scaling
	@sh hack/fleet-before.sh
	@uptime

arch: ## check the imports between packages
	go test ./test/arch/

bench: build ## compare the router with client-go programs, measure checkpoint, guests and restarts, and write docs/BENCHMARKS.md
	go -C bench run . -write ../docs/BENCHMARKS.md
	go -C bench run ./guests -write ../docs/BENCHMARKS.md
	go -C bench run . -restart -write ../docs/BENCHMARKS.md

pgo: ## record cmd/router/default.pgo, with which the compiler optimizes the router for this work
	go -C bench run . -profile ../cmd/router/default.pgo

footprint: router bin/sandbox ## measure image size, installation, start to ready, and memory with 100,000 pods
	go -C bench run . -footprint -rounds 5

fuzz: ## run each fuzz target for FUZZTIME (20s), or a number of executions: FUZZTIME=500x
	@sh hack/fuzz.sh $(FUZZTIME) $(CODE)

fmt: $(GOLANGCI) ## format all Go files
	$(GOLANGCI) fmt

fmt-check: $(GOLANGCI)
	$(GOLANGCI) fmt --diff

tidy: ## tidy every go.mod
	$(call each,$(MODULES),go mod tidy)

tidy-check:
	$(call each,$(MODULES),go mod tidy -diff)

generate: ## regenerate all generated files
	go run ./cmd/router schema config > docs/config.schema.json
	go run ./cmd/router schema include > docs/include.schema.json
	go run ./cmd/router schema reference > docs/CONFIG.md
	go run ./cmd/router crds > deploy/crds/crds.yaml
	go test -count=1 -run 'TestGuarantees|TestArchitectureTables' ./test/arch -update
	go run ./hack/diagram docs/img
	go run ./hack/monitoring deploy/monitoring
	CGO_ENABLED=0 go -C hack/chart run -trimpath .
	@if [ -x bin/sandbox ]; then CGO_ENABLED=0 go test -trimpath -count=1 -run TestBuiltin ./test/schemas -args -update; \
	else echo "the built-in schemas stay as they are: they are read from bin/sandbox, which make build makes"; fi
	$(call each,$(CODE),go generate ./...)

# The linter reads compiled dependencies from the build cache; the flags of the build find those of
# the build. Four linters read the source of dependencies instead: for Kubernetes that would take 80 s
# more, for code that only tests use.
LINT = export CGO_ENABLED=0; case $$m in \
	./sandbox) $(CURDIR)/$(GOLANGCI) run --disable staticcheck,govet,contextcheck,exhaustive ./... ;; \
	*) GOFLAGS="$$GOFLAGS -trimpath" $(CURDIR)/$(GOLANGCI) run ./... ;; \
	esac

lint: $(GOLANGCI) ## lint all modules
	$(call each,$(CODE),$(LINT))

check: fmt tidy generate lint ## run the checks of a commit beside the tests: format, tidy, generate, lint, no difference
	@git diff --exit-code || { echo "check: commit the differences above, and run it again" >&2; exit 1; }

clean: ## remove all built files
	rm -rf bin dist

# One binary per version: a new pinned version is built again.
$(GOLANGCI):
	@rm -f bin/golangci-lint-*
	@CGO_ENABLED=0 sh hack/progress.sh $@ go build -C tools -trimpath -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
