package work_test

import (
	"testing"

	"github.com/deltarouter/deltarouter/internal/fleet/work"
)

func BenchmarkCodec(b *testing.B) {
	c := work.NewCodec()
	m := &work.Message{Route: "r", Hash: "h", Key: "k", Delta: full(b)}
	body := c.Encode(m)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Encode(m)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Decode(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
