// Package timer is the clock of the router: a [Clock] that reads the time and makes timers, and a
// [Wheel] of many timers. Beside the real clock there is a [Fake] that tests advance, so that a
// test of hours takes milliseconds and gives the same result each time.
//
//	Clock ──Now──► due timers            Clock ──Set──► the function of a Timer is called
//
// Tests that do not check exact times can use testing/synctest instead: the real clock works in its
// bubbles.
package timer
