#!/bin/sh
# Runs the tests of the given Go modules, then those of other languages. It continues after a
# failure.
set -u

# The race detector needs cgo, which needs a C compiler with its headers: test it with a build.
# CGO_ENABLED=0 is respected.
race=-race
if ! why=$(go build -race runtime/cgo 2>&1); then
	race=
	echo "NOTE: testing without the race detector, which needs cgo and a C compiler:"
	printf '%s\n' "$why" | sed -n '1,3s/^/  /p'
fi

# go test does not show skipped tests.
if [ -z "${PROMETHEUS_BIN:-}" ] && ! { command -v promtool && command -v prometheus; } >/dev/null; then
	echo "SKIPPED	the tests of alerts and dashboard: promtool and prometheus are not in PATH (Debian's package prometheus)"
fi

if [ ! -f pkg/plugins/js/engine/quickjs.wasm ]; then
	echo "SKIPPED	the tests of JavaScript handlers: their engine is missing (make jsengine, which needs npm and its registry)"
fi

failed=
for module in "$@"; do
	echo "--- test $module"
	case $module in
	# No race detector: it would compile Kubernetes again, for minutes, to test a few hundred lines.
	# CGO_ENABLED=0 shares the build cache of bin/sandbox.
	./sandbox) (cd "$module" && CGO_ENABLED=0 go test -shuffle=on -timeout 30m ./...) || failed="$failed $module" ;;
	# No race detector: it would compile Sigstore and a registry again.
	./keyless) (cd "$module" && CGO_ENABLED=0 go test -trimpath -shuffle=on -timeout 30m ./...) || failed="$failed $module" ;;
	# The flags of the router's build, for the same reason. Go would take a cached result after a change
	# of deploy/chart, which is outside of the module.
	./hack/chart) (cd "$module" && CGO_ENABLED=0 go test -trimpath -count=1 -shuffle=on -timeout 30m ./...) || failed="$failed $module" ;;
	# Tests that are slow under the race detector skip themselves there, or most of their work, and
	# run again with the flags of the build.
	.)
		# test/chaos waits for processes to start and end: the default of ten minutes is too short
		# on a busy machine.
		go test $race -shuffle=on -timeout 30m ./... || failed="$failed $module"
		[ -z "$race" ] || CGO_ENABLED=0 go test -trimpath -shuffle=on -timeout 30m ./internal/expr ./pkg/filters ./pkg/index ./pkg/plugins/extism ./pkg/plugins/stdio ./pkg/plugins/wasm ./test/budgets ./test/sim || failed="$failed $module"
		;;
	*) (cd "$module" && go test $race -shuffle=on -timeout 30m ./...) || failed="$failed $module" ;;
	esac
done

sh hack/native.sh || failed="$failed hack/native.sh"

[ -z "$failed" ] || { echo "tests failed in:$failed" >&2; exit 1; }
