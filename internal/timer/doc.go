// Package timer is what the router knows of time: a [Clock] that tells it and wakes at it. There is
// the real one, and a [Fake] that is moved by hand, so that a test of hours takes milliseconds and
// comes out the same each time.
//
//	Clock ──Now──► what is due?          Clock ──Set──► the function of a Timer is called
//
// Where nothing is to be found out about time itself, testing/synctest does without a Fake: the
// real clock heeds its bubbles.
package timer
