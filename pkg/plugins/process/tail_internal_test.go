package process

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestTail: however much is written, in whatever pieces, the end of it is kept, and no more.
func TestTail(t *testing.T) {
	var said tail
	for _, piece := range []string{strings.Repeat("x", 10*tailSize), strings.Repeat("y", tailSize-1), "\n", "the\nend\x1b\n"} {
		if n, err := said.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
		if len(said.text) > tailSize {
			t.Fatalf("%d bytes are kept", len(said.text))
		}
	}
	if is, want := said.String(), strings.Repeat("y", tailSize-len("\nthe\nend\x1b\n"))+"; the; end\uFFFD"; is != want {
		t.Errorf("got %s, want %s", is, want)
	}
}

// TestOverlayIsOver: between its commit and its end a call can write no more.
func TestOverlayIsOver(t *testing.T) {
	o := &overlay{}
	if err := o.commit(); err != nil {
		t.Fatal(err)
	}
	if err := o.put(plugins.KVWrite{Key: "k"}); err == nil || err.Error() != `"k" was written after its call` {
		t.Error(err)
	}
}
