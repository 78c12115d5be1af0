//go:build !race

package budgets_test

const raceDetector = false
