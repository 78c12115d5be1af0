#!/bin/sh
# progress.sh NAME go build …
#
# Runs a long `go build` and prints its progress every ten seconds: a build of some minutes without
# output seems to hang. The output of go is shown only if it fails. A build of less than ten seconds
# prints nothing.
set -u

name=$1
shift

log=$(mktemp)
trap 'rm -f "$log"' EXIT
start=$(date +%s)

# With -v go prints each package at the start of its compilation. The sleeps are short because the
# last one outlives this script, and silent because it would keep a pipe open.
ticker() {
	naps=0
	while kill -0 $$ 2>/dev/null; do
		sleep 1 >/dev/null 2>&1
		naps=$((naps + 1))
		[ $((naps % 10)) = 0 ] || continue
		echo "  $name: $(($(date +%s) - start)) s, $(grep -c '^go: downloading' "$log") modules downloaded," \
			"$(grep -c '^[^ :#]*$' "$log") packages compiled"
	done
}
ticker &
ticker=$!

# In the foreground, so that Ctrl-C reaches go.
GOFLAGS="${GOFLAGS:-} -v" "$@" 2>"$log"
status=$?
kill "$ticker" 2>/dev/null
wait "$ticker" 2>/dev/null

took=$(($(date +%s) - start))
if [ "$status" != 0 ]; then
	grep -v -e '^[^ :#]*$' -e '^go: downloading' "$log" >&2
	echo "$name: the build failed after $took s" >&2
elif [ "$took" -ge 10 ]; then
	echo "  $name: built in $took s"
fi
exit "$status"
