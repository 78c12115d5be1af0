#!/bin/sh
# vulncheck.sh GOVULNCHECK
#
# Compares the router, and the module whose certificate authorities are in the image, with Go's
# database of vulnerabilities. It fails if the code uses a vulnerable function. Where the database
# cannot be reached it says so and succeeds, because nothing is known. $GOVULNDB names a copy of the
# database: a URL, also file:///…
set -u

log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed=
check() {
	echo "--- vulncheck $1 $2"
	"$govulncheck" ${GOVULNDB:+-db "$GOVULNDB"} -C "$1" "$2" >"$log" 2>&1
	status=$?
	if [ "$status" != 0 ] && grep -q 'fetching vulnerabilities' "$log"; then
		echo "NOTE: nothing was checked, the database of vulnerabilities cannot be reached:"
		sed 's/^/  /' "$log"
		return
	fi
	cat "$log"
	[ "$status" = 0 ] || failed="$failed $1"
}

govulncheck=$1
check . ./cmd/router
check tools/release ./...
[ -z "$failed" ] || { echo "vulncheck failed in:$failed" >&2; exit 1; }
