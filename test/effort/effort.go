// Package effort gives tests the number of their rounds. The environment variable EFFORT is the one
// knob for all of them:
//
//   - fast, the default: the rounds of make test, make race and make e2e;
//   - full: those of make test-all, which must pass before a release;
//   - soak: those of make soak, which takes hours.
//
// A test makes the same assertions at every effort: more rounds find rarer defects. AtLeast is for
// the few that have no short form; test/arch refuses guarantees that only make soak tests.
package effort

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Level is a value of EFFORT. A greater one has more rounds.
type Level int

// The levels.
const (
	Fast Level = iota
	Full
	Soak
)

// variable is the environment variable. The go command keeps a cached result of a test apart for
// each of its values.
const variable = "EFFORT"

// Current returns the level of this run. It panics if EFFORT has another value than those of the
// package comment: a misspelled effort would test less than asked for.
func Current() Level {
	level, err := parse(os.Getenv(variable))
	if err != nil {
		panic(err)
	}
	return level
}

func parse(text string) (Level, error) {
	switch text {
	case "", "fast":
		return Fast, nil
	case "full":
		return Full, nil
	case "soak":
		return Soak, nil
	}
	return 0, fmt.Errorf("%s=%q is none of fast, full and soak", variable, text)
}

// Rounds returns the number of rounds of a test: one of the three at the current effort. The unit
// is that of the caller: schedules, kills, events. With the race detector the rounds of fast are a
// fifth, at least one: there a round takes up to ten times as long, the first rounds show most
// races, and make test runs all of them without it.
func Rounds(fast, full, soak int) int { return rounds(Current(), Race, fast, full, soak) }

func rounds(level Level, race bool, fast, full, soak int) int {
	if race {
		fast = max(1, fast/5)
	}
	return []int{Fast: fast, Full: full, Soak: soak}[level]
}

// AtLeast skips a test below an effort.
func AtLeast(tb testing.TB, least Level) {
	tb.Helper()
	if Current() < least {
		tb.Skipf("runs with %s=%s", variable, []string{"fast", "full", "soak"}[least])
	}
}

// Checks sets how often rapid.Check draws and checks, to Rounds of the three. -rapid.checks on the
// command line has precedence. A TestMain calls it before it runs the tests.
func Checks(fast, full, soak int) { setFlag("rapid.checks", Rounds(fast, full, soak)) }

// Waiting runs up to n tests with t.Parallel at a time, and not one per core: the tests of the
// package mostly wait for other processes, or for time to pass. -test.parallel on the command line
// has precedence. A TestMain calls it before it runs the tests.
func Waiting(n int) { setFlag("test.parallel", n) }

func setFlag(name string, value int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, strconv.Itoa(value)); err != nil {
		panic(fmt.Errorf("no test uses the flag: %w", err))
	}
}
