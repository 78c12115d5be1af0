#!/bin/sh
# Builds the handlers of examples/plugins into bin/plugins: a guest as NAME.wasm, a native plugin (it speaks go-plugin) as NAME.
# A folder without Go source is written in another language; its README says how to build it.
set -eu

out=$PWD/bin/plugins
mkdir -p "$out"
for dir in examples/plugins/*/; do
	ls "$dir"*.go >/dev/null 2>&1 || continue
	name=$(basename "$dir")
	if grep -qs hashicorp/go-plugin "$dir/go.mod"; then
		CGO_ENABLED=0 go build -C "$dir" -trimpath -ldflags '-s -w' -o "$out/$name" .
	else
		# c-shared makes a reactor: it is started once and then called per batch, where a command would end after main.
		GOOS=wasip1 GOARCH=wasm go build -C "$dir" -trimpath -ldflags '-s -w' -buildmode=c-shared -o "$out/$name.wasm" .
	fi
done
