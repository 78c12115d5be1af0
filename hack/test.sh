#!/bin/sh
# Runs the tests of the Go modules given as folders, then those of other languages; all of them, also after a failure.
set -u

# The race detector needs cgo, and cgo a C compiler with its headers: try, rather than guess. CGO_ENABLED=0 is respected.
race=-race
if ! why=$(go build -race runtime/cgo 2>&1); then
	race=
	echo "NOTE: testing without the race detector, which needs cgo and a C compiler:"
	printf '%s\n' "$why" | sed -n '1,3s/^/  /p'
fi

failed=
for module in "$@"; do
	echo "--- test $module"
	case $module in
	# Kubernetes under the race detector would be compiled once more, for minutes, to test a few hundred lines of ours.
	# CGO_ENABLED=0 is how bin/sandbox is built: what is compiled for it is used again.
	./sandbox) (cd "$module" && CGO_ENABLED=0 go test -shuffle=on -timeout 30m ./...) || failed="$failed $module" ;;
	# What is slow under the race detector leaves itself, or most of itself, out there and is run with the flags of the build.
	.)
		# test/chaos waits for processes to start and to be killed: ten minutes, the default, are too few on a machine that is busy.
		go test $race -shuffle=on -timeout 30m ./... || failed="$failed $module"
		[ -z "$race" ] || CGO_ENABLED=0 go test -trimpath -shuffle=on -timeout 30m ./internal/expr ./pkg/filters ./pkg/index ./pkg/plugins/wasm ./test/sim || failed="$failed $module"
		;;
	*) (cd "$module" && go test $race -shuffle=on -timeout 30m ./...) || failed="$failed $module" ;;
	esac
done

sh hack/native.sh || failed="$failed hack/native.sh"

[ -z "$failed" ] || { echo "tests failed in:$failed" >&2; exit 1; }
