//go:build !race

package extism

const raceDetector = false
