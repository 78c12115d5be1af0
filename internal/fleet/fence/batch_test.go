package fence_test

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/fleet/fence"
)

// Split keeps the order, the bounds, and the parts of a message together; each batch but the last
// is full.
func TestSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []*nats.Msg
		for group := range rapid.IntRange(0, 300).Draw(t, "groups") {
			size := rapid.SampledFrom([]int{1, 10_000, 300_000}).Draw(t, "size")
			parts := rapid.SampledFrom([]int{1, 1, 1, 2, 7}).Draw(t, "parts")
			for range parts {
				m := &nats.Msg{Subject: "w.m", Data: make([]byte, size), Header: nats.Header{}}
				if parts > 1 {
					m.Header.Set(fence.PartHeader, strconv.Itoa(group))
				}
				all = append(all, m)
			}
		}
		i := 0
		for n, b := range fence.Split(all) {
			bytes := 0
			for _, m := range b {
				if m != all[i] {
					t.Fatal("the order is not kept")
				}
				i, bytes = i+1, bytes+m.Size()
			}
			part := b[len(b)-1].Header.Get(fence.PartHeader)
			alone := part != "" && b[0].Header.Get(fence.PartHeader) == part
			if !alone && (len(b) > fence.MaxMessages || bytes > fence.MaxBytes) {
				t.Fatalf("batch %d has %d messages and %d bytes", n, len(b), bytes)
			}
			if i < len(all) && part != "" && all[i].Header.Get(fence.PartHeader) == part {
				t.Fatal("the parts of a message are in two batches")
			}
		}
		if i != len(all) {
			t.Fatalf("%d of %d messages are left", i, len(all))
		}
	})
}
