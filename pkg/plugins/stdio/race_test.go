//go:build race

package stdio_test

// raceDetector: with the race detector the compilation of CPython takes minutes.
const raceDetector = true
