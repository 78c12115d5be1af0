package printable

import (
	"strings"
	"time"
)

// Duration renders a duration for people: with three digits below a minute, and in whole seconds
// above, as in 20.2s and 1h2m5s. Units that are zero at its end are left out, as in 2m.
func Duration(d time.Duration) string {
	unit := time.Second
	if d.Abs() < time.Minute {
		for unit = 1; d.Abs()/unit >= 1000; {
			unit *= 10
		}
	}
	text := d.Round(unit).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
