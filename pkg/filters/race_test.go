//go:build race

package filters_test

// raceDetector makes allocations of its own and expressions many times slower. What measures either
// is tested without it.
const raceDetector = true
