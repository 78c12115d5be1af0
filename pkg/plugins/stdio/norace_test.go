//go:build !race

package stdio_test

const raceDetector = false
