# Needs Go and make; `make race` needs a C compiler. `make` lists the targets.

# Every folder with a go.mod is a separate module; those of tools/pins only pin programs.
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './bin/*' -not -path '*/testdata/*' -not -path '*/node_modules/*')))
CODE    := $(filter-out ./tools/pins ./tools/pins/actionlint,$(MODULES))

VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

# Leaves out the trace pages of grpc, whose templates would make the router 9 MB larger: see
# docs/rationale/tooling.md. The router is also built in tools/release, test/routertest, bench and
# .ci/run.
TAGS := grpcnotrace

GOLANGCI_VERSION := $(shell awk '$$1 == "github.com/golangci/golangci-lint/v2" { print $$2 }' tools/pins/go.mod)
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)

# Without cgo, like the build, so that both share their cached packages.
TESTS := CGO_ENABLED=0 go run -trimpath ./tools/tests

# $(call each,MODULES,COMMAND) runs the command in each module, continues after a failure, and fails
# if one failed.
each = @failed=; for m in $(1); do echo "--- $@ $$m"; (cd $$m && $(2)) || failed="$$failed $$m"; done; \
	[ -z "$$failed" ] || { echo "$@ failed in:$$failed" >&2; exit 1; }

.PHONY: help build run test race e2e test-all soak fuzz fmt lint generate check bench release clean vulncheck bin/router bin/keyless
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

build: bin/router bin/sandbox ## build bin/router, bin/sandbox and the example plugins, bin/plugins
	@sh tools/guests.sh

run: bin/router bin/sandbox ## run config.yaml on a temporary cluster, or with CLUSTER=current on the current kubeconfig context
	@sh tools/guests.sh go-only
	@bash tools/run.sh

bin/router: # go looks for changes by itself
	@sh tools/jsengine.sh
	@[ -x bin/router ] || echo "bin/router: the first build takes some minutes"
	@CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags '-s -w -X github.com/deltarouter/deltarouter/internal/version.version=$(VERSION)' -o bin/router ./cmd/router

# A file, not a phony target: go needs seconds to check thousands of packages of Kubernetes for
# changes.
bin/sandbox: $(shell find tools/sandbox -name '*_test.go' -prune -o -type f -print)
	@echo "bin/sandbox is a Kubernetes API server with its etcd; the first build takes some minutes"
	@CGO_ENABLED=0 go build -C tools/sandbox -trimpath -ldflags '-s -w' -o ../../bin/sandbox .
	@touch $@ # go leaves the file unchanged after changes of comments or times

# The oldest Kubernetes that can be built from published Go modules. tools/sandbox/oldest.mod is not
# in MODULES: `go mod tidy` does not know it. The tag selects the code for its API.
bin/sandbox-oldest: $(shell find tools/sandbox -name '*_test.go' -prune -o -type f -print)
	@echo "bin/sandbox-oldest is a Kubernetes API server; the first build takes some minutes"
	@CGO_ENABLED=0 go build -C tools/sandbox -trimpath -modfile=oldest.mod -tags kubernetes130 -ldflags '-s -w' -o ../../$@ .
	@touch $@ # go leaves the file unchanged after changes of comments or times

bin/keyless: # verifies keyless signatures and writes plugins.lock
	@CGO_ENABLED=0 go build -C tools/keyless -trimpath -ldflags '-s -w' -o ../../bin/keyless .

test: build ## run the tests of all packages and SDKs, and a few against a real API server
	@sh tools/python.sh
	@$(TESTS) test

race: build ## run the tests of the packages with concurrency, with the race detector
	@$(TESTS) race

# KUBERNETES=oldest selects the tests whose result depends on the API server, see test/targets.
KUBERNETES ?=
e2e: build $(KUBERNETES:%=bin/sandbox-%) ## run the tests that start other processes; with KUBERNETES=oldest some of them on that version
	@$(TESTS) e2e $(KUBERNETES)

test-all: build ## run all tests with more rounds, and with the race detector where it can find something
	@sh tools/python.sh
	@$(TESTS) test-all

SLICE ?=
soak: build ## run for hours the tests that find more the longer they run, or only those of SLICE=ledger
	@$(TESTS) soak $(SLICE)

FUZZTIME ?= 20s
fuzz: ## run each fuzz target for FUZZTIME (20s), or a number of executions: FUZZTIME=500x
	@sh tools/fuzz.sh $(FUZZTIME) $(CODE)

fmt: $(GOLANGCI) ## format all Go files and tidy every go.mod
	@$(GOLANGCI) fmt
	$(call each,$(MODULES),go mod tidy)

# The linter reads compiled dependencies from the build cache; the flags of the build find those of
# the build. Four linters read the source of dependencies instead: for Kubernetes that would take 80 s
# more, for code that only tests use.
LINT = export CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -trimpath"; case $$m in \
	./tools/sandbox) $(CURDIR)/$(GOLANGCI) run --disable staticcheck,govet,contextcheck,exhaustive ./... ;; \
	*) $(CURDIR)/$(GOLANGCI) run ./... ;; \
	esac

lint: $(GOLANGCI) bin/actionlint ## lint all modules and the workflows, and compare the packages of pkg with the recorded ones
	@bin/actionlint
	@CGO_ENABLED=0 go run -trimpath ./tools/api
	$(call each,$(CODE),$(LINT))

generate: ## regenerate all generated files
	go run ./cmd/router schema config > docs/config.schema.json
	go run ./cmd/router schema include > docs/include.schema.json
	go run ./cmd/router schema reference > docs/CONFIG.md
	go run ./cmd/router crds > deploy/crds/crds.yaml
	go test -count=1 -run 'TestGuarantees|TestArchitectureTables' ./test/arch -update
	CGO_ENABLED=0 go run -trimpath ./test/spine -table
	go run ./tools/diagram docs/img
	go run ./tools/monitoring deploy/monitoring
	CGO_ENABLED=0 go -C tools/chart run -trimpath .
	@if [ -x bin/sandbox ]; then CGO_ENABLED=0 go test -trimpath -count=1 -run TestBuiltin ./test/schemas -args -update; \
	else echo "the built-in schemas stay as they are: they are read from bin/sandbox, which make build makes"; fi
	$(call each,$(CODE),go generate ./...)

check: fmt generate lint ## run the checks of a commit beside the tests: format, tidy, generate, lint, no difference
	@git diff --exit-code || { echo "check: commit the differences above, and run it again" >&2; exit 1; }

# PEERS is a folder with binaries of other tools: the router is compared with them instead.
PEERS ?=
bench: build ## measure the router beside client-go programs, and write docs/BENCHMARKS.md; with PEERS=DIR beside the tools in DIR, for hours, and write docs/PEERS.md
ifneq ($(PEERS),)
	go -C test/bench run ./peers -dir "$(abspath $(PEERS))" -write ../../docs/PEERS.md
else
	go -C test/bench run . -write ../../docs/BENCHMARKS.md
	go -C test/bench run ./guests -write ../../docs/BENCHMARKS.md
	go -C test/bench run . -restart -write ../../docs/BENCHMARKS.md
endif

release: ## build the artifacts of a release, dist/release; with CHECK=1 twice, and compare the checksums
	@sh tools/jsengine.sh
	go -C tools/release run . release
	@[ -z "$(CHECK)" ] || sh tools/release-again.sh "$(VERSION)"

vulncheck: bin/govulncheck ## look for known vulnerabilities, where Go's database of them can be reached
	@sh tools/vulncheck.sh $(CURDIR)/bin/govulncheck

clean: ## remove all built files
	rm -rf bin dist

bin/govulncheck: tools/pins/go.mod
	@CGO_ENABLED=0 go build -C tools/pins -trimpath -o ../../$@ golang.org/x/vuln/cmd/govulncheck
	@touch $@ # go leaves the file unchanged if only other modules changed

bin/actionlint: tools/pins/actionlint/go.mod
	@CGO_ENABLED=0 go build -C tools/pins/actionlint -trimpath -o ../../../$@ github.com/rhysd/actionlint/cmd/actionlint
	@touch $@

# One binary per version: a new pinned version is built again.
$(GOLANGCI):
	@rm -f bin/golangci-lint-*
	@echo "$@: the first build takes some minutes"
	@CGO_ENABLED=0 go build -C tools/pins -trimpath -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
