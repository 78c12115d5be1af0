package plugincmd

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestSize(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 bytes", 1023: "1023 bytes", 1536: "1.5 KiB", 3 << 20: "3.0 MiB", 2 << 30: "2.0 GiB"} {
		if got := Size(bytes); got != want {
			t.Errorf("%v: %s, want %s", bytes, got, want)
		}
	}
}
