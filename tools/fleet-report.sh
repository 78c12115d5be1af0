#!/bin/sh
# fleet-report.sh [ROUNDS]
#
# Measures a fleet: takeovers of real processes (ROUNDS, 3), replication, a hop to a worker, scaling,
# and the cost of a delta without the section `fleet`. That cost is compared with a commit, $BEFORE: by
# default the last one without fleets. The benchmarks of both run in turns; it prints the medians.
set -e
cd "$(dirname "$0")/.."
uptime
CGO_ENABLED=0 go run -trimpath ./test/fleet/report -rounds "${1:-3}"
CGO_ENABLED=0 go -C test/bench run -trimpath . -only fleet,hop,scaling
[ -n "$BEFORE" ] || BEFORE=$(git log --format=%h --reverse --diff-filter=A -- internal/fleet/fence/fence.go | head -1)^
export CGO_ENABLED=0
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree/before" 2>/dev/null; rm -rf "$tree"' EXIT
trap 'exit 1' INT TERM
git worktree add -q --detach "$tree/before" "$BEFORE"
for p in ./internal/pipeline ./pkg/informer; do
	name=$(basename $p)
	go test -trimpath -c -o "$tree/now-$name" $p
	go -C "$tree/before" test -trimpath -c -o "$tree/before-$name" $p
done
for round in 1 2 3; do
	for which in before now; do
		(cd internal/pipeline && "$tree/$which-pipeline" -test.run '^$' -test.bench 'Delivery|Chain' -test.benchmem -test.benchtime 0.3s) | sed "s/^/$which /" >>"$tree/out"
		(cd pkg/informer && "$tree/$which-informer" -test.run '^$' -test.bench Ingest -test.benchmem -test.benchtime 0.3s) | sed "s/^/$which /" >>"$tree/out"
	done
done
printf '\n%-44s %12s %12s %8s %10s %10s\n' "without a fleet, before it was added and now" "before ns" "now ns" "ratio" "allocs" "allocs now"
awk '$2 ~ /^Benchmark/ {
	for (i = 3; i < NF; i++) {
		if ($(i+1) == "ns/op") { n = ++count[$1,$2]; time[$1,$2,n] = $i }
		if ($(i+1) == "cpu-ns/op") time[$1,$2,n] = $i # other load on the machine is no part of it
		if ($(i+1) == "allocs/op" && (!(($1,$2) in allocs) || $i < allocs[$1,$2])) allocs[$1,$2] = $i
	}
	names[$2] = 1
}
function median(w, b,  a, i, j, t, n) {
	n = count[w,b]
	for (i = 1; i <= n; i++) a[i] = time[w,b,i]
	for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (a[j] < a[i]) { t = a[i]; a[i] = a[j]; a[j] = t }
	return a[int((n + 1) / 2)]
}
END {
	for (b in names) if (count["before",b] && count["now",b])
		printf "%-44s %12.0f %12.0f %8.2f %10d %10d\n", b, median("before", b), median("now", b), median("now", b) / median("before", b), allocs["before",b], allocs["now",b]
}' "$tree/out" | sort
uptime
