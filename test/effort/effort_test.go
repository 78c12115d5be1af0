package effort

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestRounds(t *testing.T) {
	for _, tt := range []struct {
		level Level
		race  bool
		want  int
	}{{Fast, false, 12}, {Full, false, 20}, {Soak, false, 300}, {Fast, true, 2}, {Full, true, 20}, {Soak, true, 300}} {
		if got := rounds(tt.level, tt.race, 12, 20, 300); got != tt.want {
			t.Errorf("level %d, race detector %t: %d rounds, want %d", tt.level, tt.race, got, tt.want)
		}
	}
	if got := rounds(Fast, true, 3, 20, 300); got != 1 {
		t.Errorf("%d rounds, want at least one", got)
	}
}

func TestLevels(t *testing.T) {
	for text, want := range map[string]Level{"": Fast, "fast": Fast, "full": Full, "soak": Soak} {
		t.Setenv(variable, text)
		if got := Current(); got != want {
			t.Errorf("%s=%q: level %d, want %d", variable, text, got, want)
		}
	}
}

func TestMisspelled(t *testing.T) {
	if _, err := parse("Full"); err == nil || err.Error() != `EFFORT="Full" is none of fast, full and soak` {
		t.Errorf("got %v", err)
	}
}
