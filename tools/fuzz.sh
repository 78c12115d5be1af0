#!/bin/sh
# fuzz.sh AMOUNT MODULE…
#
# Runs each fuzz target of the modules for AMOUNT: a time as 20s, or a number of executions as 500x,
# which does not depend on the speed of the machine. go test would link the same binary again for
# each target of a package, and -fuzz accepts one target at a time, so the binaries run by
# themselves. Like go test, a target that fails leaves its input in testdata/fuzz. New inputs of
# other runs are kept in go's cache.
set -eu

amount=$1
shift
cache=$(go env GOCACHE)/fuzz
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

found=0
failed=
for module in "$@"; do
	for dir in $(cd "$module" && grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u); do
		# Nested modules have their own run.
		[ "$(cd "$module/$dir" && go env GOMOD)" = "$(cd "$module" && go env GOMOD)" ] || continue
		(cd "$module" && CGO_ENABLED=0 go test -c -fuzz=. -o "$bin/test" "$dir")
		for target in $(cd "$module/$dir" && "$bin/test" -test.list '^Fuzz'); do
			echo "--- fuzz $module $dir $target for $amount"
			(cd "$module/$dir" && "$bin/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$amount" \
				-test.fuzzminimizetime 100x -test.fuzzcachedir "$cache/deltarouter/$module/$dir") || failed="$failed $module/$dir:$target"
			found=$((found + 1))
		done
	done
done
echo "$found fuzz targets ran"
[ -z "$failed" ] || { echo "fuzz targets failed:$failed" >&2; exit 1; }
