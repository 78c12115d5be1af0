//go:build race

package sim_test

// raceDetector makes a schedule take ten times as long.
const raceDetector = true
