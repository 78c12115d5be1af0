#!/bin/sh
# fuzz.sh TIME MODULE…: runs each fuzz target of the modules for TIME, one after the other: go test
# accepts one at a time.
set -eu

time=$1
shift
found=0
for module in "$@"; do
	for file in $(cd "$module" && grep -rl --include='*_test.go' '^func Fuzz' . || true); do
		# Nested modules have their own run.
		dir=$(dirname "$file")
		[ "$(cd "$module/$dir" && go env GOMOD)" = "$(cd "$module" && go env GOMOD)" ] || continue
		for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$module/$file"); do
			echo "--- fuzz $module $dir $target for $time"
			(cd "$module" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir")
			found=$((found + 1))
		done
	done
done
echo "$found fuzz targets ran"
