package child

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
)

// TestTail: for any writes, exactly the end is kept.
func TestTail(t *testing.T) {
	var said tail
	for _, piece := range []string{strings.Repeat("x", 10*TailSize), strings.Repeat("y", TailSize-1), "\n", "the\nend\x1b\n"} {
		if n, err := said.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
		if len(said.text) > TailSize {
			t.Fatalf("%d bytes are kept", len(said.text))
		}
	}
	if is, want := said.String(), strings.Repeat("y", TailSize-len("\nthe\nend\x1b\n"))+"; the; end\uFFFD"; is != want {
		t.Errorf("got %s, want %s", is, want)
	}
}

func TestMain(m *testing.M) { leaks.Main(m) }
