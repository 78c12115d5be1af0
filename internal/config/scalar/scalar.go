// Package scalar parses text, numbers, sizes, durations and booleans into Go values.
package scalar

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes: 512, 64Mi, 1Gi (powers of 1024), or 10k, 10M, 1G (powers of 1000). It
// is never negative.
type Size int64

// Count is a number of things: 500, 10k, 10M or 1G. It is never negative.
type Count int64

const countUnits = "kMGT"

// parseSize reads a Size. The error completes "must be …".
func parseSize(text string) (Size, error) {
	number, binary := strings.CutSuffix(text, "i")
	base := int64(1000)
	if binary {
		base = 1024
		// Ki is valid, but for 1000 it is k
		number = strings.NewReplacer("K", "k", "k", "?").Replace(number)
	}
	n, ok := parseUnits(number, base, binary)
	if !ok {
		return 0, fmt.Errorf("a size in bytes, as in 512, 64Mi or 10M")
	}
	return Size(n), nil
}

// parseCount reads a Count. The error completes "must be …".
func parseCount(text string) (Count, error) {
	n, ok := parseUnits(text, 1000, false)
	if !ok {
		return 0, fmt.Errorf("a whole number that is not negative, as in 500, 10k or 10M")
	}
	return Count(n), nil
}

// parseUnits reads digits and one letter of countUnits. The letter is optional unless needed is
// set.
func parseUnits(text string, base int64, needed bool) (int64, bool) {
	unit := int64(1)
	digits := strings.TrimRight(text, countUnits)
	if len(text)-len(digits) > 1 || needed && len(text) == len(digits) {
		return 0, false
	}
	if digits != text {
		for range strings.IndexByte(countUnits, text[len(digits)]) + 1 {
			unit *= base
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return 0, false
	}
	return int64(n) * unit, true
}

// parseDuration reads a duration that is not negative. The error completes "must be …".
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("a duration with its unit, as in 10ms, 30s, 5m or 24h")
	}
	if d < 0 {
		return 0, fmt.Errorf("a duration that is not negative")
	}
	return d, nil
}
