package natstest

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestReserve shows that a reserved port is not given away while no server uses it, and that it is
// free again afterwards.
func TestReserve(t *testing.T) {
	seen := map[int]bool{}
	var all []*ports
	for range blocks / 2 {
		p, err := reserve(1)
		must.Succeed(t, err)
		all = append(all, p)
		if port := p.numbers[0]; seen[port] {
			t.Fatalf("port %d was reserved twice", port)
		} else {
			seen[port] = true
		}
	}
	for _, p := range all {
		p.release()
	}
	for range blocks {
		p, err := reserve(portsPerBlock)
		must.Succeed(t, err)
		defer p.release()
		if seen[p.numbers[0]] {
			return
		}
	}
	t.Error("no released port was reserved again")
}
