#!/bin/sh
# Runs the native tests of SDKs and handlers in languages other than Go, for each language that this
# machine can compile or run. It names the skipped ones; pkg/plugins/wasm tests their modules in any
# case.
set -u
cd "$(dirname "$0")/.."

out=$PWD/bin/native
mkdir -p "$out"
failed=

run() { # NAME COMMAND…
	name=$1
	shift
	if said=$("$@" 2>&1); then
		echo "ok  	$name"
	else
		printf '%s\nFAIL	%s\n' "$said" "$name"
		failed="$failed $name"
	fi
}

skipped() { echo "SKIPPED	native tests in $1: $2 is not installed"; }

rust() { # SOURCE
	"$rustc" --edition=2021 -D warnings --test -L "$out" --extern deltarouter="$out/libdeltarouter.rlib" -o "$out/test" "$1" && "$out/test" -q
}

rust_sdk() {
	"$rustc" --edition=2021 -D warnings --test --crate-name deltarouter -o "$out/test" sdk/rust/src/lib.rs && "$out/test" -q &&
		"$rustc" --edition=2021 -D warnings --crate-type=rlib --crate-name=deltarouter --out-dir "$out" sdk/rust/src/lib.rs
}

c() { # SOURCE [GOLDEN…]
	source=$1
	shift
	"$cc" -std=c11 -Wall -Wextra -Werror -g $sanitize -I sdk/c -o "$out/test" "$source" && ASAN_OPTIONS=detect_leaks=0 "$out/test" "$@"
}

golden() { # FOLDER
	if [ -d "$1/testdata" ]; then ls "$1"/testdata/*.txtar; else ls "$1"/../*.txtar; fi
}

echo "--- test Rust, C, AssemblyScript"
if rustc=$(command -v "${RUSTC:-rustc}") && command -v cc >/dev/null; then # rustc links with cc
	run sdk/rust rust_sdk
	for source in examples/plugins/*/*.rs sdk/conformance/*/*.rs; do run "${source%/*}" rust "$source"; done
else
	skipped Rust "rustc, or the linker cc,"
fi

if cc=$(command -v cc || command -v clang || command -v clang-14); then
	sanitize="-fsanitize=address,undefined"
	# shellcheck disable=SC2086 # several words
	echo 'int main(void) { return 0; }' | "$cc" $sanitize -x c -o "$out/test" - 2>/dev/null || sanitize=
	run sdk/c c sdk/c/sdk_test.c
	for source in examples/plugins/*/*_test.c sdk/conformance/*/*_test.c; do
		# shellcheck disable=SC2046
		run "${source%/*}" c "$source" $(golden "${source%/*}")
	done
else
	skipped C "a C compiler"
fi

if node=$(command -v node || command -v nodejs); then
	for source in examples/plugins/*/*.ts sdk/conformance/*/*.ts; do
		# shellcheck disable=SC2046
		run "${source%/*}" "$node" sdk/assemblyscript/golden.mjs "${source%.ts}.wasm" $(golden "${source%/*}")
	done
else
	skipped AssemblyScript node
fi

# pkg/plugins/process runs it with the first python3 of the path or the system's; go test does not
# show skipped tests.
if ! python3 -c 'import grpc' 2>/dev/null && ! /usr/bin/python3 -c 'import grpc' 2>/dev/null; then
	echo "SKIPPED	examples/plugins/native-python: python3 with grpcio is not installed (pip install grpcio, or Debian's python3-grpcio)"
fi

[ -z "$failed" ] || { echo "native tests failed in:$failed" >&2; exit 1; }
