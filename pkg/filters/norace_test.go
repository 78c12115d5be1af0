//go:build !race

package filters_test

const raceDetector = false
