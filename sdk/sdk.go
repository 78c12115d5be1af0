// Package sdk holds the sources of the SDKs, which `router plugin new` copies beside a new handler:
// so a handler builds without a checkout of this repository and without a network.
package sdk

import "embed"

// Files contains the folders rust, c, assemblyscript and javascript unchanged, and go.txtar, a copy
// of the folder go: that is a module of its own, whose files cannot be embedded.
//
//go:embed go.txtar c/*.h c/README.md rust/src rust/Cargo.toml rust/README.md
//go:embed assemblyscript/assembly assemblyscript/host.mjs assemblyscript/golden.mjs
//go:embed assemblyscript/package.json assemblyscript/README.md
//go:embed javascript/deltarouter.d.ts
var Files embed.FS

//go:generate go test -count=1 -run TestGoCopy . -args update
