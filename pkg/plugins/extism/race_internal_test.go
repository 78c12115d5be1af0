//go:build race

package extism

// raceDetector: with the race detector the compilation of a Go guest takes 20 seconds. Tests
// without goroutines skip under it.
const raceDetector = true
