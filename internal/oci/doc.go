// Package oci fetches WebAssembly modules from OCI registries, verifies their signatures, keeps
// them in a folder by digest, and pushes them.
//
// A registry is not trusted: sizes, redirects and the duration of a fetch are bounded, and all
// content is compared with its digest.
package oci
