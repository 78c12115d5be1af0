#!/bin/sh
# release-again.sh VERSION
#
# Builds the release of the last commit again, in a clone, and compares the checksums with those of
# dist/release: the same commit and version of Go give the same bytes.
set -eu
cd "$(dirname "$0")/.."
[ -z "$(git status --porcelain)" ] || { echo "release: commit your changes first: the clone has only commits" >&2; exit 1; }
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone -q . "$clone/clone"
engine=pkg/plugins/js/engine/quickjs.wasm
[ ! -f $engine ] || cp $engine "$clone/clone/pkg/plugins/js/engine/"
go -C "$clone/clone/tools/release" run . release -version "$1" -out "$PWD/dist/again"
cmp dist/release/checksums.txt dist/again/checksums.txt
