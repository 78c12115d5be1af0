package similar_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/similar"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "ab", 2},
		{"replicas", "replcas", 1},
		{"replicas", "rpelicas", 1}, // two neighbours are swapped
		{"größe", "grösse", 2},
		{"a", "b", 1},
		{strings.Repeat("a", 65), strings.Repeat("a", 64), 65}, // not compared
	} {
		if got := similar.Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%.20q and %.20q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := similar.Distance(tt.b, tt.a); got != tt.want {
			t.Errorf("%.20q and %.20q: %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}
