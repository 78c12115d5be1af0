//go:build race

package wasm_test

// raceDetector makes compiling a Go guest take 20 seconds. What has no goroutines is tested without
// it.
const raceDetector = true
