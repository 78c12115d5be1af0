package owner

import (
	"cmp"
	"hash/fnv"
	"io"
	"slices"
	"strings"
)

// weight is the claim of a member to a partition in rendezvous hashing: the member with the
// greatest one owns it.
func weight(member, partition string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, member)
	_, _ = io.WriteString(h, "\x00")
	_, _ = io.WriteString(h, partition)
	// FNV mixes the last bytes badly into the high bits: partitions differ in their last letter only
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// ranked returns the members in the order of their claims to a partition.
func ranked(members []string, partition string) []string {
	all := slices.Clone(members)
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(b, partition), weight(a, partition)), strings.Compare(a, b))
	})
	return all
}
