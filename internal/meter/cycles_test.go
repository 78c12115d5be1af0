package meter

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestChoose shows which nodes of small graphs are chosen.
func TestChoose(t *testing.T) {
	ring := make([][]int32, 100_000)
	for i := range ring {
		ring[i] = []int32{int32((i + 1) % len(ring))}
	}
	tests := map[string]struct {
		edges [][]int32
		first []int // chosen before
		want  int   // the number of chosen nodes
	}{
		"nothing":                  {nil, nil, 0},
		"a chain":                  {[][]int32{{1}, {2}, nil}, nil, 0},
		"a node that calls itself": {[][]int32{{0}}, nil, 1},
		"a long ring":              {ring, nil, 1},
		"two rings with a node":    {[][]int32{{1, 2}, {0}, {0}}, nil, 1},
		"two rings apart":          {[][]int32{{1}, {0}, {3}, {2}}, nil, 2},
		"a ring chosen before":     {[][]int32{{1}, {0}}, []int{1}, 1},
		"each calls each":          {[][]int32{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, nil, 3},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			chosen := make([]bool, len(tt.edges))
			for _, node := range tt.first {
				chosen[node] = true
			}
			choose(tt.edges, chosen)
			n := 0
			for _, c := range chosen {
				if c {
					n++
				}
			}
			if n != tt.want {
				t.Errorf("%d chosen, want %d", n, tt.want)
			}
		})
	}
}

// TestOrder shows for random graphs that no cycle is left and that the order has callees first.
// Some graphs have so many calls that the careful choice ends.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "nodes")
		copies := rapid.SampledFrom([]int{1, 1, 1, 1, 1, 2_500_000}).Draw(t, "copies")
		edges := make([][]int32, n)
		for range rapid.IntRange(0, 3*n).Draw(t, "calls") {
			from, to := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.Int32Range(0, int32(n-1)).Draw(t, "to")
			edges[from] = append(edges[from], to)
		}
		edges[0] = append(edges[0], slices.Repeat([]int32{0}, copies)...)
		chosen := make([]bool, n)
		order := choose(edges, chosen)
		at := make([]int, n)
		for i, node := range order {
			at[node] = i + 1
		}
		for from, calls := range edges {
			if at[from] == 0 {
				t.Errorf("%d is not in the order", from)
			}
			for _, to := range calls {
				if !chosen[to] && at[to] >= at[from] {
					t.Fatalf("%d calls %d, which is not chosen and comes later", from, to)
				}
			}
		}
	})
}
