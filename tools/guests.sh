#!/bin/sh
# Builds the handlers of examples/plugins into bin/plugins: a guest as NAME.wasm, a native plugin (it
# imports sdk/process, or is a main.py) as NAME.
#
# For languages other than Go, the repository has the built module beside its source, so that tests
# and users need Go's toolchain only. NAME.wasm.sum lists its source files and its compiler. If the
# machine has the toolchain, the module is built again and compared: the same compiler must produce
# the same bytes. With another compiler, or without one, the checked-in module is copied to
# bin/plugins.
#
#   guests.sh            build into bin/plugins; writes nothing else
#   guests.sh go-only    the same, but copy the checked-in modules: runs only Go's compiler
#   guests.sh checked-in [FOLDER…]
#                        rebuild the checked-in modules, of some folders or of all, with their
#                        sums; fails if a toolchain is missing
set -eu
cd "$(dirname "$0")/.."

mode=${1:-plugins} # plugins, go-only or checked-in
[ $# = 0 ] || shift
[ $# != 0 ] || set -- examples/plugins/* sdk/conformance/* sdk/conformance/calls/* sdk/conformance/phase/*
out=$PWD/bin/plugins
scratch=$PWD/bin/guests
mkdir -p "$out" "$scratch"

note() { echo "plugins: $*"; }
# skip records why a module is not built; the end of the script has one line about all.
skip() { echo "$1" >>"$scratch/skipped"; }
fail() { echo "plugins: $*" >&2; exit 1; }

# first prints the path of the first of some programs that is installed.
first() {
	for program in "$@"; do
		command -v "$program" 2>/dev/null && return
	done
	return 1
}

# Each of these prints the compiler and its version, and fails if no compiler for WebAssembly is
# installed.
rust_toolchain() {
	for rustc in "${RUSTC:-rustc}" /usr/bin/rustc; do
		command -v "$rustc" >/dev/null && [ -d "$("$rustc" --print sysroot)/lib/rustlib/wasm32-unknown-unknown/lib" ] || continue
		echo "$rustc $("$rustc" --version | cut -d' ' -f1,2)"
		return
	done
	return 1
}

c_toolchain() {
	clang=$(first ${CLANG:-} clang-14 clang clang-19 clang-16) || return 1
	echo 'int f(void) { return 1; }' | "$clang" --target=wasm32 -nostdlib -Wl,--no-entry -x c -o "$scratch/probe.wasm" - 2>/dev/null || return 1
	echo "$clang $("$clang" --version | sed -n '1s/.*version \([0-9.]*\).*/clang \1/p')"
}

ts_toolchain() {
	asc=sdk/assemblyscript/node_modules/assemblyscript
	node=$(first node nodejs) && [ -f "$asc/bin/asc.js" ] || return 1
	echo "$node assemblyscript $(sed -n 's/^ *"version": "\(.*\)",*/\1/p' "$asc/package.json")"
}

# rustmain and cmain are commands: plain programs for WASI, which use no SDK.
wasi_target() {
	for target in wasm32-wasip1 wasm32-wasi; do
		[ ! -d "$("$1" --print sysroot)/lib/rustlib/$target/lib" ] || { echo $target && return; }
	done
	return 1
}

rustmain_toolchain() {
	for rustc in "${RUSTC:-rustc}" /usr/bin/rustc; do
		command -v "$rustc" >/dev/null && wasi_target "$rustc" >/dev/null || continue
		echo "$rustc $("$rustc" --version | cut -d' ' -f1,2)"
		return
	done
	return 1
}

cmain_toolchain() {
	clang=$(first ${CLANG:-} clang-14 clang clang-19 clang-16) || return 1
	printf '#include <stdio.h>\nint main(void) { return puts(""); }\n' | "$clang" --target=wasm32-wasi -x c -o "$scratch/probe.wasm" - 2>/dev/null || return 1
	libc=$(dpkg-query -W -f '${Version}' wasi-libc 2>/dev/null || :)
	echo "$clang $("$clang" --version | sed -n '1s/.*version \([0-9.]*\).*/clang \1/p')${libc:+ wasi-libc $libc}"
}

# toolchain caches the compiler of each language.
toolchain() {
	[ -f "$scratch/$1.toolchain" ] || "$1_toolchain" >"$scratch/$1.toolchain" || :
	cat "$scratch/$1.toolchain"
}

missing() {
	case $1 in
	rust) echo "no rustc with the target wasm32-unknown-unknown (Debian: rustc libstd-rust-dev-wasm32)" ;;
	c) echo "no clang that makes WebAssembly (Debian: clang lld)" ;;
	rustmain) echo "no rustc with the target wasm32-wasip1 (Debian: rustc libstd-rust-dev-wasm32)" ;;
	cmain) echo "no clang with wasi-libc (Debian: clang lld wasi-libc libclang-rt-14-dev-wasm32)" ;;
	ts) echo "no assemblyscript (npm ci --prefix sdk/assemblyscript)" ;;
	esac
}

# sources lists the source files of a module.
sources() {
	case $1 in
	rust) ls sdk/rust/src/*.rs ;;
	c) ls sdk/c/*.h ;;
	ts) ls sdk/assemblyscript/assembly/*.ts sdk/assemblyscript/package-lock.json ;;
	esac
	echo "$2"
}

# compile LANGUAGE SOURCE MODULE fails if the compiler does. Paths are relative, so that the bytes
# do not depend on the place of this folder. C is compiled and linked in two steps, the second
# without -O: with -O, clang's driver runs the wasm-opt of the path on the result, and Debian's
# wasm-opt rejects the bulk memory instructions that clang emits.
compile() {
	compiler=$(toolchain "$1" | cut -d' ' -f1)
	case $1 in
	rust)
		flags="--edition=2021 --target=wasm32-unknown-unknown -C opt-level=s -C panic=abort -C codegen-units=1 --remap-path-prefix=$PWD=."
		# shellcheck disable=SC2086 # several words
		[ -f "$scratch/libdeltarouter.rlib" ] ||
			"$compiler" $flags --crate-type=rlib --crate-name=deltarouter --out-dir "$scratch" sdk/rust/src/lib.rs || return
		# shellcheck disable=SC2086
		"$compiler" $flags -C lto -C strip=symbols --crate-type=cdylib --extern "deltarouter=$scratch/libdeltarouter.rlib" -o "$3" "$2" || return
		;;
	c)
		"$compiler" --target=wasm32 -std=c11 -Wall -Wextra -O2 -mbulk-memory -ffreestanding -I sdk/c -c -o "$3.o" "$2" &&
			"$compiler" --target=wasm32 -nostdlib -Wl,--no-entry,--gc-sections,--strip-all,--stack-first -o "$3" "$3.o" || return
		rm -f "$3.o"
		;;
	rustmain)
		"$compiler" --edition=2021 --target="$(wasi_target "$compiler")" -C opt-level=s -C panic=abort -C codegen-units=1 -C lto -C strip=symbols \
			--remap-path-prefix="$PWD=." -o "$3" "$2" || return
		;;
	cmain)
		"$compiler" --target=wasm32-wasi -std=gnu11 -Wall -Wextra -O2 -c -o "$3.o" "$2" &&
			"$compiler" --target=wasm32-wasi -Wl,--gc-sections,--strip-all,--stack-first -o "$3" "$3.o" || return
		rm -f "$3.o"
		;;
	ts)
		"$compiler" sdk/assemblyscript/node_modules/assemblyscript/bin/asc.js "$2" -o "$3" -O3 --runtime incremental \
			--exportStart _initialize --use abort=sdk/assemblyscript/assembly/exports/abort || return
		;;
	esac
	chmod 644 "$3"
}

# go_plugin FOLDER
go_plugin() {
	if grep -qs sdk/process "$1"/*.go; then
		CGO_ENABLED=0 go build -C "$1" -trimpath -ldflags '-s -w' -o "$out/$(basename "$1")" .
	else
		# c-shared makes a reactor: it is started once and called for each batch. A command would
		# end after main.
		GOOS=wasip1 GOARCH=wasm go build -C "$1" -trimpath -ldflags '-s -w' -buildmode=c-shared -o "$out/$(basename "$1").wasm" .
	fi
}

# check_in LANGUAGE SOURCE MODULE
check_in() {
	[ -n "$(toolchain "$1")" ] || fail "$3: $(missing "$1")"
	compile "$1" "$2" "$3" || fail "$3: $(toolchain "$1" | cut -d' ' -f2-) failed"
	{
		echo "# $(toolchain "$1" | cut -d' ' -f2-)"
		# shellcheck disable=SC2046 # several words
		sha256sum $(sources "$1" "$2") "$3"
	} >"$3.sum"
	note "$3: built by $(toolchain "$1" | cut -d' ' -f2-)"
}

# compare LANGUAGE SOURCE MODULE BUILT
compare() {
	with=$(toolchain "$1" | cut -d' ' -f2-)
	if cmp -s "$3" "$4"; then
		note "$3: $with gives the same bytes"
	elif ! sha256sum -c --quiet "$3.sum" >/dev/null 2>&1; then
		note "$3: not of these sources any more: sh tools/guests.sh checked-in"
	elif [ "$(sed -n '1s/# //p' "$3.sum")" = "$with" ]; then
		fail "$3: $with gives other bytes than those that are checked in, of the same sources"
	else
		note "$3: not compared: it was built by $(sed -n '1s/# //p' "$3.sum"), here is $with"
	fi
}

# other LANGUAGE SOURCE
other() {
	module=${2%.*}.wasm
	built=$scratch/$(echo "${module%.wasm}" | tr / -).wasm
	case $mode in
	checked-in)
		check_in "$1" "$2" "$module"
		return
		;;
	go-only) built=$module ;;
	*) build "$1" "$2" ;;
	esac
	case $module in examples/plugins/*) cp "$built" "$out/$(basename "$module").new" && mv "$out/$(basename "$module").new" "$out/$(basename "$module")" ;; esac
}

# build LANGUAGE SOURCE compiles $module into $built and compares the two. If the toolchain is
# missing or fails, it uses the checked-in module instead.
build() {
	if [ -z "$(toolchain "$1")" ]; then
		skip "$(missing "$1")"
		cp "$module" "$built"
	# shellcheck disable=SC2046 # several words
	elif [ -f "$built" ] && [ -z "$(find $(sources "$1" "$2") "$module" "$module.sum" tools/guests.sh -newer "$built" 2>/dev/null)" ]; then
		return
	elif compile "$1" "$2" "$built" >"$scratch/compiler.log" 2>&1; then
		cat "$scratch/compiler.log"
		compare "$1" "$2" "$module" "$built"
	else
		skip "$module: $(toolchain "$1" | cut -d' ' -f2-) failed ($(grep -m1 . "$scratch/compiler.log"))"
		cp "$module" "$built"
	fi
}

rm -f "$scratch"/*.toolchain "$scratch"/*.rlib "$scratch/skipped"
for dir in "$@"; do
	for source in "$dir"/*.rs "$dir"/*.c "$dir"/*.ts; do
		case $source in
		*'*'* | *_test.c) ;;
		*/command-*.rs) other rustmain "$source" ;;
		*/command-*.c) other cmain "$source" ;;
		*.rs) other rust "$source" ;;
		*.c) other c "$source" ;;
		*.ts) other ts "$source" ;;
		esac
	done
	[ ! -f "$dir/main.py" ] || [ "$mode" = checked-in ] || install -m 755 "$dir/main.py" "$out/$(basename "$dir")"
	case $dir in examples/*) ! ls "$dir"/*.go >/dev/null 2>&1 || [ "$mode" = checked-in ] || go_plugin "$dir" ;; esac
done
[ ! -s "$scratch/skipped" ] ||
	note "SKIPPED building $(wc -l <"$scratch/skipped") modules, what is checked in is used: $(sort -u "$scratch/skipped" | paste -sd '|' | sed 's/|/; /g')"
