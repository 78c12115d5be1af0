package route

import (
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
)

// lacks are the reasons for which the rules of a route have had no room.
type lacks struct{ keys, objects lack }

// lack is one of them. The zero value means that it has not happened.
type lack struct {
	reason string
	last   time.Time
	said   bool // it has not happened since the last call of News
}

func (l *lack) note(reason string, now time.Time) { *l = lack{reason: reason, last: now} }

// lackShown is how long a reason is shown after it last happened.
const lackShown = time.Minute

// Reasons returns the reasons of the last minute.
func (l *lacks) Reasons(now time.Time) (reasons []string) {
	for _, lack := range l.all() {
		if lack.reason != "" && now.Sub(lack.last) < lackShown {
			reasons = append(reasons, lack.reason)
		}
	}
	return reasons
}

// News returns the reasons that have happened since the last call.
func (l *lacks) News() (reasons []string) {
	for _, lack := range l.all() {
		if lack.reason != "" && !lack.said {
			reasons = append(reasons, lack.reason)
			lack.said = true
		}
	}
	return reasons
}

func (l *lacks) all() []*lack { return []*lack{&l.keys, &l.objects} }

// lackOfKeys returns why the limit of the route with an id forgets keys, and what to do about it.
func lackOfKeys(id string, limit *condition.Limit) string {
	const effect = "forgotten keys may be reported too early: choose a limit.key with fewer values, or a shorter limit.every"
	bound, shared := limit.Crowded()
	if !shared {
		return fmt.Sprintf("the limit has used its %d keys; %s", bound, effect)
	}
	return fmt.Sprintf("the limits of all routes of %s have used their %d keys; %s", checkpoint.Owner(id), bound, effect)
}

// lackOfObjects returns why the conditions and delete holds of the route with an id track no more
// objects, and what to do about it.
func lackOfObjects(id string, s *shares) string {
	return fmt.Sprintf("the rules (when, for) of all routes of %s track %d objects, which is their share, and report no further ones: "+
		"let when match fewer objects, choose a shorter for, or have fewer such routes; then run router resync -route", checkpoint.Owner(id), s.Objects)
}
