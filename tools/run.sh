#!/usr/bin/env bash
# Runs the router on a new sandbox that is deleted afterwards, or with CLUSTER=current on the
# cluster of kubectl's current context, where it changes nothing. Ctrl-C stops the processes that
# this script has started.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=
sandbox=
router=
forced=
flag=

say() { printf '%s\n' "run: $*" >&2; }

# end NAME PID SECONDS: asks the process to stop, waits, and kills it only if it does not.
end() {
	local i
	kill -TERM "$2" 2>/dev/null || return 0
	for ((i = 0; i < $3 * 10; i++)); do
		kill -0 "$2" 2>/dev/null || return 0
		[ -z "$forced" ] || break
		sleep 0.1
	done
	say "$1 does not stop, killing it"
	kill -KILL "$2" 2>/dev/null || true
}

# The router stops before the cluster it watches.
finish() {
	local status=$?
	set +e # from here on a failed step does not stop the others
	trap - EXIT
	trap 'forced=1' INT TERM HUP # a second Ctrl-C does not wait
	[ -z "$router" ] || end "the router" "$router" 30
	[ -z "$sandbox" ] || end "the sandbox" "$sandbox" 15
	wait 2>/dev/null || true
	[ -z "$dir" ] || rm -rf "$dir"
	exit "$status"
}
trap finish EXIT
trap 'exit 0' INT TERM HUP

# current_context prints the current context of the kubeconfig: of several files, the first with one
# counts.
current_context() {
	local IFS=: file
	for file in ${KUBECONFIG:-$HOME/.kube/config}; do
		[ -r "$file" ] || continue
		awk 'sub(/^current-context: */, "") { gsub(/["\047]/, ""); if ($0 != "") { print; found = 1; exit } }
			END { exit !found }' "$file" && return
	done
	return 1
}

start_sandbox() {
	dir=$(mktemp -d "${TMPDIR:-/tmp}/deltarouter-run.XXXXXX")
	mkfifo "$dir/alive"
	say "starting a sandbox cluster (log: $dir/sandbox.log)"
	# With -stdin the sandbox ends with this script in any case: the script holds the other end of
	# the pipe.
	set -m # see below
	bin/sandbox -dir "$dir/cluster" -seed examples/cluster -demo -stdin <"$dir/alive" >"$dir/sandbox.log" 2>&1 &
	sandbox=$!
	set +m
	exec 3>"$dir/alive"

	local i
	for ((i = 0; i < 1200; i++)); do
		if grep -qx ready "$dir/sandbox.log"; then
			export KUBECONFIG=$dir/cluster/kubeconfig
			# A new cluster needs a new state folder: the state of the last cluster does not fit.
			export STATE_DIR=$dir/state
			say "sandbox is ready; to look inside: KUBECONFIG=$KUBECONFIG kubectl get pods"
			return
		fi
		kill -0 "$sandbox" 2>/dev/null || break
		sleep 0.1
	done
	say "the sandbox did not become ready:"
	tail -n 20 "$dir/sandbox.log" >&2
	exit 1
}

case ${CLUSTER:-sandbox} in
sandbox) start_sandbox ;;
current)
	flag=-allow-exec # the user's own kubeconfig may run the same programs as with kubectl
	if context=$(current_context); then
		say "cluster: context \"$context\" of ${KUBECONFIG:-$HOME/.kube/config}"
	elif [ -n "${KUBERNETES_SERVICE_HOST:-}" ]; then
		say "cluster: the one this runs in"
	else
		say "CLUSTER=current, but there is no current context in ${KUBECONFIG:-$HOME/.kube/config}"
		exit 1
	fi
	;;
*)
	say "CLUSTER=$CLUSTER: must be sandbox (the default) or current"
	exit 1
	;;
esac

say "router -config config.yaml${flag:+ $flag}; Ctrl-C stops it"
# Job control gives a child its own process group: Ctrl-C reaches only this script, which then stops
# its children in order.
set -m
bin/router -config config.yaml ${flag:+"$flag"} </dev/null 3>&- &
router=$!
set +m

# suggest prints the next commands once, as soon as the router answers. They read its cache and
# change nothing.
suggest() {
	[ -z "$suggested" ] && bin/router get -config config.yaml >/dev/null 2>&1 || return 0
	suggested=1
	say "the router is ready; try in another terminal, in this folder:"
	say "  bin/router get pods -config config.yaml          # its cache"
	say "  bin/router tap -rejected -config config.yaml     # each change, and why routes pass it over"
	say "then change config.yaml: a saved change takes effect at once, and a mistake changes nothing"
}
suggested=

# If the sandbox ends first, this script ends too. bash 3.2 has no wait -n.
while kill -0 "$router" 2>/dev/null; do
	suggest
	if [ -n "$sandbox" ] && ! kill -0 "$sandbox" 2>/dev/null; then
		say "the sandbox ended:"
		tail -n 20 "$dir/sandbox.log" >&2
		exit 1
	fi
	sleep 0.2
done
status=0
wait "$router" || status=$?
router=
exit "$status"
