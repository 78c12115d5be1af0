package effort

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestRounds(t *testing.T) {
	for text, want := range map[string]int{"": 1, "fast": 1, "full": 20, "soak": 300} {
		t.Setenv(variable, text)
		if got := Rounds(1, 20, 300); got != want {
			t.Errorf("%s=%q: %d rounds, want %d", variable, text, got, want)
		}
	}
}

func TestMisspelled(t *testing.T) {
	if _, err := parse("Full"); err == nil || err.Error() != `EFFORT="Full" is none of fast, full and soak` {
		t.Errorf("got %v", err)
	}
}
