package statefile

import (
	"bytes"
	"os"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint/value"
	"github.com/deltarouter/deltarouter/test/must"
)

// FuzzPages walks files with arbitrary damage. Panics are not caught: each is a failure.
func FuzzPages(f *testing.F) {
	c, err := value.NewCodec()
	must.Succeed(f, err)
	f.Cleanup(c.Close)
	golden, err := os.ReadFile("../testdata/format1.db")
	must.Succeed(f, err)
	f.Add(uint32(8192), []byte{1, 2, 3}, uint32(4096*5), []byte{0xff, 0xff})
	f.Add(uint32(4096*2+8), []byte{1, 0, 1, 0}, uint32(4096*3), []byte{})
	f.Add(uint32(4096*4), golden[4096*3:4096*3+200], uint32(4096*7+16), golden[4096*4:4096*4+64])
	f.Fuzz(func(t *testing.T, at uint32, bad []byte, at2 uint32, bad2 []byte) {
		file := bytes.Clone(golden)
		copy(file[min(int(at), len(file)):], bad)
		copy(file[min(int(at2), len(file)):], bad2)
		check := checker{codec: c, meta: c.Seed(0, MetaBucket)}
		walker := &pages{file: bytes.NewReader(file), size: int64(len(file)), codec: c, visit: check.visit}
		if _, err := walker.walk(); err != nil {
			return
		}
		if check.done() == nil && check.found.Count == 0 {
			t.Error("an empty file is in order")
		}
	})
}
