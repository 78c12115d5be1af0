//go:build race

package filters_test

// raceDetector: the race detector allocates, and makes expressions many times slower. Tests of
// either skip under it.
const raceDetector = true
